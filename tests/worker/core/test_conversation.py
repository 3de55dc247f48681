"""The conversation: append-only, and every call answered once."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import Status, TerminationReason, Usage
from deputize.shared.errors import ErrorType, ToolError
from deputize.shared.events import ProgressMade
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import history_key, ledger_key, record_key
from deputize.worker.core.conversation import RESTART, Conversation
from deputize.worker.models.base import Call, Prompt, Reply, ToolSpec, with_call_keys
from deputize.worker.task import carry_out
from deputize.worker.tools.base import ToolResult
from tests.fake_model import Turn, text
from tests.fake_model import call as asked
from tests.processes.lag import lag_probe
from tests.runs.bench import Bench, call, open_bench, say, script, talking
from tests.waiting import until

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


def test_an_unreadable_call_stays_so_after_a_crash_and_what_was_sent_is_the_same() -> None:
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


class Shown(dict[str, Any]):
    """A schema that counts how often it is made a text."""

    times = 0

    def __repr__(self) -> str:
        self.times += 1
        return super().__repr__()


async def test_the_tokens_of_tools_are_counted_once_for_all_runs_that_share_them() -> None:
    schema = Shown(description="word " * 1000)
    tools = (ToolSpec("tool", "", schema),)
    counts = {await Conversation().tokens_at_most(Prompt("", tools, [], 0)) for _ in range(3)}
    assert 1000 < counts.pop() < 3000
    assert (counts, schema.times) == (set(), 1)
    assert await Conversation().tokens_at_most(Prompt("", (replace(tools[0], schema={}),), [], 0)) < 20


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


# A conversation that nears the model's window goes on from a summary of itself (P-21).


FIRST = {"match": {"contains": "Work so far"}}
WRITE = call("write_file", path="a.txt", content="word " * 400)
READ = call("read_file", path="a.txt")


def long_script(folder: Path, *after: Any, summary: str = "NOTES: a.txt was written.", **more: Any) -> str:
    """Two turns that make the conversation long, and what is played when it has begun anew."""
    name = script(folder, [WRITE], [READ], [say("never reached")], summary=summary)
    path = Path(name.partition(":")[2])
    rules = [{**FIRST, "turns": list(after) or [[READ], [say("all done")]]}, *json.loads(path.read_text())["rules"]]
    path.write_text(json.dumps({"rules": rules, "label": "", "window": 1600} | more))
    return name


async def kept(bench: Bench, id: str) -> list[Any]:
    return [json.loads(entry) for entry in (await bench.store.conversation(id))[0]]


@pytest.mark.requirement("P-21")
async def test_a_long_conversation_goes_on_as_a_fresh_one_from_a_summary(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run("write it", model=long_script(tmp_path))
    assert (result.termination_reason, result.summary) == (TerminationReason.COMPLETED, "all done")
    assert result.files_modified == ["a.txt"]
    assert (result.turn_count, result.tool_call_count) == (4, 3)
    entries = await kept(bench, result.delegation_id)
    at = entries.index(json.loads(RESTART))
    before, after = entries[:at], entries[at + 1 :]
    blocks = [block for entry in before + after for block in entry["content"]]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert calls == [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert len(calls) == 3  # what was sent is not edited
    assert [message["role"] for message in before] == ["user", "assistant"] * 2 + ["user"]
    text = after[0]["content"][0]["text"]
    assert text.startswith("# Task\n\nwrite it")
    assert "NOTES: a.txt was written." in text
    assert "# Files you have read" in text
    assert text.count("- a.txt") == 1
    assert [message["role"] for message in after] == ["user", "assistant", "user", "assistant"]
    said = [event.message for event in await bench.seen(result, ProgressMade)]
    assert said == ["the conversation neared the model's window: 5 messages became a summary of 25 characters"]


@pytest.mark.requirement("P-21")
@pytest.mark.parametrize("summary", ["", "   "])
async def test_a_summariser_without_a_text_does_not_fail_the_run(bench: Bench, tmp_path: Path, summary: str) -> None:
    result = await bench.run("write it", model=long_script(tmp_path, summary=summary))
    assert result.status is Status.SUCCEEDED
    entries = await kept(bench, result.delegation_id)
    text = entries[entries.index(json.loads(RESTART)) + 1]["content"][0]["text"]
    assert "The model wrote no summary: the model's reply was empty" in text
    assert "1. [turn 1] ✓ write a.txt" in text


@pytest.mark.requirement("P-21")
async def test_a_conversation_that_the_endpoint_finds_too_long_begins_anew(bench: Bench, tmp_path: Path) -> None:
    name = script(tmp_path)
    full = {"kind": "too_long", "message": "HTTP 400: prompt is too long: 210000 tokens > 200000 maximum"}
    turns = [[WRITE], {"blocks": [say("never said")], "faults": [full]}]
    after = {**FIRST, "turns": [[say("done from the log")]]}
    rules = {"rules": [after, {"turns": turns, "summary": "NOTES"}], "label": ""}
    Path(name.partition(":")[2]).write_text(json.dumps(rules))
    result = await bench.run("write it", model=name)
    assert (result.status, result.summary) == (Status.SUCCEEDED, "done from the log")
    assert result.turn_count == 2
    (said,) = await bench.seen(result, ProgressMade)
    assert "HTTP 400: prompt is too long" in said.message


async def test_a_task_longer_than_the_window_is_reported(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run("write it " * 1000, model=long_script(tmp_path))
    assert result.termination_reason is TerminationReason.MODEL_UNAVAILABLE
    assert "give the task less context" in result.errors[0]


@pytest.mark.requirement("P-21")
async def test_a_lost_worker_goes_on_in_the_fresh_conversation(redis_url: str, tmp_path: Path) -> None:
    """The second attempt sees only the fresh conversation, and the files read before are known to it."""
    model = long_script(tmp_path, [READ], {"blocks": [say("never said")], "delay": 60})
    file = Path(model.partition(":")[2])
    async with open_bench(redis_url, tmp_path / "home") as bench:
        id = await bench.accept(DelegationRequest(task="write it", model=model))
        await bench.interrupt(id, lambda: _turns(bench, id, 4))
    file.write_text(file.read_text().replace('"delay": 60', '"delay": 0').replace("never said", "all done"))
    async with open_bench(redis_url, tmp_path / "home", name="worker-2") as bench:
        await carry_out(bench.services, id)
        result = await bench.result(id)
        assert (result.status, result.summary, result.attempts) == (Status.SUCCEEDED, "all done", 2)
        assert (result.turn_count, result.tool_call_count) == (4, 3)
        entries = await kept(bench, id)
        assert entries.count(json.loads(RESTART)) == 1


async def _turns(bench: Bench, id: str, number: int) -> bool:
    events = await bench.events(id)
    return sum(each.event.type == "turn_started" for each in events) >= number


# How a turn ends, and what the run does then: go on, begin anew, or be done.


SHORT = call("write_file", path="a.txt", content="x")


async def compactions(bench: Bench, id: str) -> list[str]:
    return [each.event.message for each in await bench.events(id) if isinstance(each.event, ProgressMade)]


@pytest.mark.parametrize("stop", ["end_turn", "max_tokens", "pause_turn"])
async def test_calls_are_carried_out_whatever_reason_the_reply_has_for_its_end(
    bench: Bench, tmp_path: Path, stop: str
) -> None:
    result = await bench.run(model=script(tmp_path, {"blocks": [SHORT], "stop": stop}, [say("done")]))
    assert (result.termination_reason, result.turn_count, result.files_modified) == ("completed", 2, ["a.txt"])


@pytest.mark.requirement("P-21")
async def test_a_reply_that_reached_the_end_of_the_window_is_followed_by_a_fresh_conversation(
    bench: Bench, tmp_path: Path
) -> None:
    name = script(tmp_path)
    half = {"blocks": [say("half of")], "stop": "model_context_window_exceeded"}
    rules = [{**FIRST, "turns": [[say("done")]]}, {"turns": [half], "summary": "NOTES"}]
    Path(name.partition(":")[2]).write_text(json.dumps({"rules": rules, "label": ""}))
    result = await bench.run(model=name)
    assert (result.termination_reason, result.turn_count, result.summary) == ("completed", 2, "done")
    assert "the reply reached the end of the model's window: " in (await compactions(bench, result.delegation_id))[0]


@pytest.mark.requirement("P-06", "P-16")
async def test_answers_are_kept_with_the_count_of_their_calls_and_the_end_of_the_ledger(
    redis_url: str, tmp_path: Path
) -> None:
    turns = Turn([asked("write_file", path="a.txt", content="x")]), Turn([text("never")], delay=1000)
    async with talking(redis_url, tmp_path / "home", *turns) as (bench, _):
        id = await bench.accept(DelegationRequest(task="do it"))
        running = asyncio.create_task(carry_out(bench.services, id))
        redis = bench.store.redis
        await until(partial(answered, redis, id))
        async with redis.pipeline() as both:
            counts, ledger = await both.hget(record_key(id), "checkpoint").hlen(ledger_key(id)).execute()
        assert (json.loads(counts)["toolCalls"], ledger) == (1, 0)
        await bench.store.cancel(id)
        await running


async def answered(redis: Any, id: str) -> bool:
    return await redis.llen(history_key(id)) == 3


@pytest.mark.requirement("P-05", "P-21")
async def test_no_summary_is_asked_for_where_no_turn_is_left_that_could_use_it(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run("write it", model=long_script(tmp_path), limits={"max_turns": 2})
    assert (result.termination_reason, result.turn_count) == ("max_turns", 2)
    assert await compactions(bench, result.delegation_id) == []
