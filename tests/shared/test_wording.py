"""The lines that people read: of events, of steps, of questions about permission, and amounts in them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from deputize.shared.delegation import Usage
from deputize.shared.events import AnyEvent, ErrorSeen, PermissionAnswered, Waiting
from deputize.shared.facts import GitFacts
from deputize.shared.permission import (
    CommandDetails,
    EditDetails,
    ExecuteDetails,
    InfoDetails,
    McpDetails,
    PermissionDetails,
    PermissionQuestion,
)
from deputize.shared.wire import now
from deputize.shared.wording import (
    cut,
    dollars,
    line_of,
    put_back,
    question_of,
    seconds,
    share,
    step_line,
    tokens,
    where,
)
from tests.wire.samples import EVENTS, STEP

LINES = {
    "run_queued": "queued: Find out why the discount is wrong, and mend it., waits for …r8s9t3",
    "run_started": "running on worker-1@host with claude-sonnet-5-5",
    "run_resumed": "taken over by worker-2@host at turn 4: the lease of worker-1 lapsed",
    "run_retried": "done again from the start in 1.0 s (retry 1 of 2), after model_unavailable: "
    "the endpoint does not answer",
    "run_finished": "✗ failed (max_tool_calls, verified): 9 turns, 20 tool calls, 1 min 01 s, "
    "2,400 tokens (38.8% cached), $0.0125 ($0.0014 saved)",
    "turn_started": "turn 3",
    "replied": "I change the comparison. → edit_file",
    "model_retried": "turn 3  the model is asked again in 1.5 s: overloaded",
    "waiting": "waits for the model's endpoint: HTTP 529 from https://api.example/v1/messages: overloaded.",
    "resumed_waiting": "goes on after 1 min 02 s",
    "step_started": "turn 3  … edit pricing.py",
    "step_completed": "turn 3  ✓ edit pricing.py",
    "permission_requested": "asks for permission: edit pricing.py (`deputize approve prm_1` or `deputize deny prm_1`)",
    "permission_answered": 'permission prm_1: denied by token "ada": no',
    "message_received": 'message …msg_1 from token "ada": Leave the tests as they are.',
    "message_read": "turn 4  message …msg_1 read",
    "wrap_up_requested": "asked to wrap up …msg_2: That is enough.",
    "check_completed": "check 1 on the base: red",
    "progress": "compacting the conversation",
    "delivered": "delivered as deputize/dlg_01, https://github.com/o/r/pull/7",
    "error": "model_unavailable: the endpoint does not answer",
}
"""The lines of the samples."""


def test_every_event_has_its_line_unless_only_programs_read_it() -> None:
    found = {type: line_of(envelope.event) for type, envelope in EVENTS.items()}
    assert {type: found[type] for type in LINES} == LINES
    assert {type for type, line in found.items() if line is None} == {
        "text_delta",
        "thinking_delta",
        "step_updated",
        "heartbeat",
    }


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Waiting(why="subagent"), "waits for subagent"),
        (Waiting(why="shared_prefix", detail="dlg_1"), "waits for a cached prefix: dlg_1"),
        (ErrorSeen(kind="rate", message="its time ended"), "its time ended"),
        (PermissionAnswered(permission_id="prm_1", outcome="proceed_always"), "permission prm_1: approved always"),
        (
            PermissionAnswered(permission_id="prm_1", outcome="modify", by="ada"),
            'permission prm_1: approved with other arguments by token "ada"',
        ),
    ],
)
def test_the_line_of_an_event_states_what_is_known(event: AnyEvent, line: str) -> None:
    assert line_of(event) == line


def test_the_end_of_a_step_has_its_duration_and_its_error() -> None:
    failed = STEP.model_copy(update={"status": "failed", "title": "", "error": "no such\nfile"})
    assert step_line(failed, failed.timestamp + timedelta(seconds=61)) == "✗ edit_file  1 min 01 s: no such file"
    assert step_line(failed, failed.timestamp - timedelta(seconds=1)) == "✗ edit_file  0.0 s: no such file"
    denied = failed.model_copy(update={"denied": True})
    assert step_line(denied, failed.timestamp + timedelta(seconds=61)) == "✗ edit_file: no such file"
    assert len(step_line(failed.model_copy(update={"title": "t" * 900, "error": "e" * 900}))) < 300


def asked(details: PermissionDetails, **fields: Any) -> PermissionQuestion:
    at = now()
    step = STEP.model_copy(update={"title": "fetch https://a.example"})
    base: dict[str, Any] = {"permission_id": "p", "step": step, "created_at": at, "expires_at": at}
    return PermissionQuestion(details=details, **base | fields)


def test_a_question_has_who_asks_why_and_what_a_lasting_answer_permits_once() -> None:
    lasting = {
        "proceed_always": ["git push *", "git add *"],
        "proceed_always_tool": ["every call of bash"],
        "proceed_always_server": ["every call of bash"],
    }
    path = ["dlg_parent", f"dlg_{'0' * 20}child1"]
    question = asked(InfoDetails(), path=path, reason="it changes something", rule="ask", remembers=lasting)
    assert question_of(question) == [
        "  asked by …child1, a child of dlg_parent",
        "  because it changes something (rule ask)",
        "  always: git push *, git add *",
        "  always, this tool: every call of bash",
    ]
    assert question_of(asked(InfoDetails(), path=path[:1], reason="why")) == ["  because why"]
    assert question_of(asked(InfoDetails())) == []


COMMANDS = [
    CommandDetails(command="ls", decision="allow", reason="only reads"),
    CommandDetails(command="rm x", decision="ask", reason="rm changes files"),
    CommandDetails(command="rm y", decision="ask", reason="rm changes files"),
]


@pytest.mark.parametrize(
    ("details", "lines"),
    [
        (
            ExecuteDetails(command="ls\nrm x; rm y > z", commands=COMMANDS, effects=["writes z"]),
            ["ls", "rm x; rm y > z", "# rm changes files", "# it writes z"],
        ),
        (EditDetails(paths=["a"], diff="--- a\n+++ b"), ["--- a", "+++ b"]),
        (EditDetails(paths=["a", "b"]), ["a", "b"]),
        (McpDetails(server="git", tool="push", arguments={"to": "ä"}), ["git: push", "{", ' "to": "ä"', "}"]),
        (McpDetails(server="git", tool="pull"), ["git: pull"]),
        (
            InfoDetails(urls=["https://a.example", "https://b.example"], arguments={"url": "https://a.example"}),
            ["https://b.example"],
        ),
    ],
    ids=lambda value: getattr(value, "type", None),
)
def test_every_line_of_a_call_is_marked(details: PermissionDetails, lines: list[str]) -> None:
    assert question_of(asked(details)) == [f"  | {line}" for line in lines]


def test_amounts_are_short_and_claim_nothing_that_is_not_known() -> None:
    assert [*map(seconds, (0.04, 59.94, 61, 7384))] == ["0.0 s", "59.9 s", "1 min 01 s", "2 h 03 min"]
    assert [*map(dollars, (None, 0.0, 0.00314, -0.5))] == ["–", "$0.0000", "$0.0031", "-$0.5000"]
    assert [share(None), share(0.97312)] == ["–", "97.3%"]
    assert tokens(Usage(input_tokens=1200, output_tokens=4, cost_usd=0.5)) == "1,204 tokens, $0.5000"
    assert tokens(Usage(cache_read_tokens=8, cost_usd=None, cache_saved_usd=None)) == "8 tokens (100.0% cached), –"
    assert tokens(Usage(input_tokens=8, batch_tokens=5, cost_usd=None)) == "8 tokens, 5 in batches, –"
    assert [cut("a \n b", 9), cut("abcdef", 4)] == ["a b", "abc…"]


def test_what_is_left_out_of_a_delivery_is_named_beside_its_branch() -> None:
    git = GitFacts(base="a", branch="fix", commit="c", left_out=["tests/a.py"])
    assert where(git) == "fix, without tests/a.py, which the checks put back"
    assert where(GitFacts(base="a", branch="fix", pull_request_url="https://x")) == "fix, https://x"
    assert put_back([f"{n}" for n in range(7)]) == "0, 1, 2, 3, 4 and 2 more, which the checks put back"
