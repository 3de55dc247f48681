"""The conversation: append-only, and every call answered once."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from deputize.shared.delegation import Usage
from deputize.shared.errors import ErrorType, ToolError
from deputize.worker.conversation import Conversation
from deputize.worker.models.base import Call, Prompt, Reply, with_call_keys
from deputize.worker.tools.base import ToolResult
from tests.lag import lag_probe

CALLS = [Call("c1", "read_file", {"path": "é"}), Call("c2", "bash", {"command": "ls"})]


WORDS = Reply([{"type": "text", "text": "y"}], "end_turn", Usage())


def prompt_of(conversation: Conversation) -> Prompt:
    return Prompt("system", (), conversation.messages, 0)


def reply(*calls: Call) -> Reply:
    content = [{"type": "text", "text": "I look."}]
    content += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in calls]
    return Reply(content, "tool_use", Usage(), "I look.", "", list(calls))


@pytest.mark.requirement("P-09", "S000-107", "S002-057")
def test_answers_follow_the_calls_in_one_message_and_in_the_order_of_asking() -> None:
    conversation = Conversation()
    conversation.ask("task")
    conversation.add(reply(*CALLS))
    failed = ToolResult.failed(ToolError(ErrorType.FILE_NOT_FOUND, "File not found: é"))
    conversation.answer([(CALLS[0], failed), (CALLS[1], ToolResult(content="a.txt"))])
    assert json.loads(conversation.messages[-1]) == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "Error: File not found: é", "is_error": True},
            {"type": "tool_result", "tool_use_id": "c2", "content": "a.txt"},
        ],
    }


@pytest.mark.requirement("S000-108")
def test_a_failure_keeps_the_output_it_had_below_its_error() -> None:
    result = ToolResult(content="half of it", error="it broke", error_type=ErrorType.EXECUTION_FAILED)
    assert result.for_model == "Error: it broke\nhalf of it"


def test_the_calls_of_an_unanswered_reply_are_found_again_after_a_crash() -> None:
    kept: list[bytes] = []
    conversation = Conversation(store=kept.append)
    conversation.ask("task")
    conversation.add(reply(*CALLS))
    assert Conversation(kept).unanswered(3) == with_call_keys(CALLS, 3)
    conversation.answer([(call, ToolResult(content="done")) for call in CALLS])
    assert Conversation(kept).unanswered(3) == []


def test_a_call_that_could_not_be_read_is_still_unreadable_after_a_crash_and_what_is_sent_stays_as_it_was() -> None:
    kept: list[bytes] = []
    conversation = Conversation(store=kept.append)
    conversation.ask("task")
    arguments = {"a": 1, "problems": {"c2": "of the model's own"}, "text": ',"problems":{}}'}
    conversation.add(reply(Call("c1", "read_file", {}, "not valid JSON: {"), Call("c2", "bash", arguments)))
    again = Conversation(kept)
    assert [call.problem for call in again.unanswered(1)] == ["not valid JSON: {", None]
    assert again.unanswered(1) == conversation.unanswered(1)
    assert again.messages == conversation.messages
    assert set(json.loads(again.messages[-1])) == {"role", "content"}
    conversation.answer([(call, ToolResult(content="done")) for call in conversation.unanswered(1)])
    conversation.add(reply(Call("c1", "bash", arguments)))
    again = Conversation(kept)
    assert [call.problem for call in again.unanswered(2)] == [None]
    assert (again.messages, again.unanswered(2)) == (conversation.messages, conversation.unanswered(2))


def test_what_was_appended_is_never_changed() -> None:
    conversation = Conversation()
    conversation.ask("one")
    before = list(conversation.messages)
    conversation.ask("two")
    assert conversation.messages[:1] == before


@pytest.mark.requirement("P-21")
def test_a_conversation_is_full_at_four_fifths_of_the_window() -> None:
    conversation = Conversation(window=1000)
    conversation.ask("x" * 100)
    conversation.add(replace(WORDS, usage=Usage(input_tokens=700, output_tokens=99)))
    assert not conversation.is_full
    conversation.add(replace(WORDS, usage=Usage(input_tokens=700, cache_read_tokens=1, output_tokens=99)))
    assert conversation.is_full
    conversation.add(replace(WORDS, usage=Usage(input_tokens=100)))
    conversation.ask("z" * 1300)
    assert not conversation.is_full
    conversation.ask("z" * 200)
    assert conversation.is_full


@pytest.mark.requirement("P-21")
@pytest.mark.parametrize(("words", "fills"), [(4000, False), (5000, True)])
async def test_what_is_long_in_bytes_is_counted_before_it_counts_as_full(words: int, fills: bool) -> None:
    conversation = Conversation(window=10_000)
    conversation.ask("task")
    conversation.add(replace(WORDS, usage=Usage(input_tokens=1000)))
    conversation.ask("word " * words)
    assert conversation.is_full
    assert await conversation.fills_window() is fills


@pytest.mark.parametrize(("words", "fills"), [(9_000, False), (10_500, True)])
async def test_a_single_message_is_full_only_where_it_certainly_exceeds_the_window(words: int, fills: bool) -> None:
    conversation = Conversation(window=10_000)
    conversation.ask("word " * words)
    assert conversation.is_full
    assert await conversation.fills_window() is fills


def test_what_cannot_be_encoded_is_replaced_where_it_is_sent() -> None:
    conversation = Conversation()
    conversation.ask("half a character: \ud83d", " ")
    conversation.add(reply(CALLS[0]))
    conversation.answer([(CALLS[0], ToolResult(content="\udcff.txt"))], note="\udcff")
    first, _, last = (json.loads(message)["content"] for message in conversation.messages)
    assert [block["text"] for block in first] == ["half a character: \ufffd"]
    assert [block.get("content", block.get("text")) for block in last] == ["\ufffd.txt", "\ufffd"]


@pytest.mark.requirement("P-21")
def test_what_was_not_billed_yet_is_estimated_after_a_restart_and_in_a_later_attempt() -> None:
    kept: list[bytes] = []
    conversation = Conversation(store=kept.append, task=("x" * 1000,), window=1000)
    assert not conversation.is_full
    conversation.add(replace(WORDS, usage=Usage(input_tokens=800)))
    assert conversation.is_full
    assert Conversation(kept, window=1000, billed=conversation.billed).is_full
    assert not Conversation(kept, window=1000).is_full
    conversation.restart("y")
    assert (conversation.is_full, conversation.billed) == (False, (0, 0))


def test_the_id_of_the_last_reply_is_forgotten_with_its_conversation_and_with_its_attempt() -> None:
    kept: list[bytes] = []
    conversation = Conversation(store=kept.append, task=("some words",))
    seen = [conversation.reply_id]
    for id in ("msg_1", "msg_2", ""):
        conversation.add(replace(WORDS, id=id))
        seen.append(conversation.reply_id)
    assert seen == [None, "msg_1", "msg_2", None]
    conversation.add(replace(WORDS, id="msg_3"))
    assert Conversation(kept).reply_id is None
    conversation.restart("some words")
    assert conversation.reply_id is None


async def test_the_bound_of_a_prompt_is_what_was_billed_and_a_bound_of_what_is_new() -> None:
    conversation = Conversation(task=("some words",))
    assert 0 < await conversation.tokens_at_most(prompt_of(conversation)) < 60
    conversation.add(replace(WORDS, usage=Usage(input_tokens=500, output_tokens=20)))
    assert await conversation.tokens_at_most(prompt_of(conversation)) == 520
    conversation.ask("more words")
    assert 520 < await conversation.tokens_at_most(prompt_of(conversation)) < 580
    conversation.restart("some words")
    assert 0 < await conversation.tokens_at_most(prompt_of(conversation)) < 60


@pytest.mark.requirement("P-07")
async def test_what_is_billed_already_is_not_counted_again_in_a_thread_either() -> None:
    conversation = Conversation(task=("some words",))
    conversation.add(replace(WORDS, usage=Usage(input_tokens=500, output_tokens=20)))
    conversation.ask("word " * 10_000)
    assert 10_000 < await conversation.tokens_at_most(prompt_of(conversation)) < 30_000


async def test_a_later_attempt_counts_the_whole_prompt_again() -> None:
    """What was billed had the tools of another worker."""
    kept: list[bytes] = []
    conversation = Conversation(store=kept.append, task=("some words",))
    conversation.add(replace(WORDS, usage=Usage(input_tokens=5)))
    again = Conversation(kept, billed=conversation.billed)
    assert await again.tokens_at_most(prompt_of(again)) > await conversation.tokens_at_most(prompt_of(conversation))


@pytest.mark.requirement("P-07")
@pytest.mark.parametrize("piece", [" ", "\n", "\u3000", "a", "\u0301", "😀", " \n", "/"])
async def test_no_text_stops_the_counting_of_its_tokens(piece: str) -> None:
    text = (piece * 1_100_000)[:1_100_000]
    async with lag_probe() as lag:
        most = await Conversation().tokens_at_most(Prompt("", (), [text.encode()], 0))
    assert 0 < most <= 2 * len(text.encode()) + 100
    assert lag.longest < 1
