"""The conversation: append-only, and every call answered once."""

from __future__ import annotations

import json

import pytest

from shared.delegation import Usage
from shared.errors import ErrorType, ToolError
from worker.history import History
from worker.models.base import Call, Reply, with_call_keys
from worker.tools.base import ToolResult

CALLS = [Call("c1", "read_file", {"path": "é"}), Call("c2", "bash", {"command": "ls"})]


def reply(*calls: Call) -> Reply:
    content = [{"type": "text", "text": "I look."}]
    content += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in calls]
    return Reply(content, "tool_use", Usage(), "I look.", "", list(calls))


@pytest.mark.requirement("P-09", "S000-107", "S002-057")
def test_answers_follow_the_calls_in_one_message_and_in_the_order_of_asking() -> None:
    history = History()
    history.ask("task")
    history.add(reply(*CALLS))
    failed = ToolResult.failed(ToolError(ErrorType.FILE_NOT_FOUND, "File not found: é"))
    history.answer([(CALLS[0], failed), (CALLS[1], ToolResult(content="a.txt"))])
    assert json.loads(history.messages[-1]) == {
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
    history = History(on_append=kept.append)
    history.ask("task")
    history.add(reply(*CALLS))
    assert History(kept).unanswered(3) == with_call_keys(CALLS, 3)
    history.answer([(call, ToolResult(content="done")) for call in CALLS])
    assert History(kept).unanswered(3) == []


def test_a_call_that_could_not_be_read_is_still_unreadable_after_a_crash_and_what_is_sent_stays_as_it_was() -> None:
    kept: list[bytes] = []
    history = History(on_append=kept.append)
    history.ask("task")
    arguments = {"a": 1, "problems": {"c2": "of the model's own"}, "text": ',"problems":{}}'}
    history.add(reply(Call("c1", "read_file", {}, "not valid JSON: {"), Call("c2", "bash", arguments)))
    again = History(kept)
    assert [call.problem for call in again.unanswered(1)] == ["not valid JSON: {", None]
    assert again.unanswered(1) == history.unanswered(1)
    assert again.messages == history.messages
    assert set(json.loads(again.messages[-1])) == {"role", "content"}
    history.answer([(call, ToolResult(content="done")) for call in history.unanswered(1)])
    history.add(reply(Call("c1", "bash", arguments)))
    again = History(kept)
    assert [call.problem for call in again.unanswered(2)] == [None]
    assert (again.messages, again.unanswered(2)) == (history.messages, history.unanswered(2))


def test_what_was_appended_is_never_changed() -> None:
    history = History()
    history.ask("one")
    before = list(history.messages)
    history.ask("two")
    assert history.messages[:1] == before
