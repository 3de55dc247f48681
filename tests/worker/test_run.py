"""One run from its request to its result: real Redis, real files, real sandbox, a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from deputize.shared.connection import Lasts, Pipe, Script, ScriptCall, connect
from deputize.shared.delegation import StepStatus
from deputize.shared.events import StepCompleted, StepStarted
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.store import WRITING
from deputize.worker.core.emit import RunUpdate
from deputize.worker.task import carry_out
from tests.runs.bench import Bench, call, say, script
from tests.worker.run_history import READ, WRITE, history_of


@pytest.mark.requirement("P-11", "S002-048", "S002-059", "S002-061", "S002-062")
async def test_a_run_does_what_the_model_asks_and_reports_facts(bench: Bench, tmp_path: Path) -> None:
    appended = call("bash", command="echo two >> a.txt; echo three > b.txt")
    model = script(tmp_path, [say("I write."), WRITE], [appended], [say("Two files were made.")])
    result = await bench.run(model=model)
    assert (result.status, result.success, result.termination_reason) == ("succeeded", True, "completed")
    assert result.summary == "Two files were made."
    assert [(change.path, change.change) for change in result.file_changes] == [
        ("a.txt", "created"),
        ("b.txt", "created"),
    ]
    assert result.files_modified == ["a.txt", "b.txt"]
    assert (result.turn_count, result.tool_call_count, result.errors) == (3, 2, [])
    assert "+two" in await bench.store.patch(result.delegation_id)


class NotedPipe(Pipe):
    """A pipe that notes which events of a run wait to be sent when it is flushed."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis, WRITING)
        self.updates: list[RunUpdate] = []
        self.waiting: list[str] = []

    def flush(self) -> None:
        self.waiting.append(" ".join(event for update in self.updates for _, event in update.events))
        super().flush()

    def deferred(self, script: Script, call: Callable[[], ScriptCall], *, lasts: Lasts = bool) -> asyncio.Future[Any]:
        if isinstance(call, partial) and isinstance(sealed := call.args[0], partial):
            self.updates.append(sealed.args[0])
        return super().deferred(script, call, lasts=lasts)


async def test_the_start_of_a_run_is_sent_without_waiting_for_more(
    bench: Bench, tmp_path: Path, redis_url: str
) -> None:
    """Writes share round trips, and some precede the start; people and parents wait for it."""
    async with connect(redis_url, timeout=None) as redis, NotedPipe(redis) as pipe:
        id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, [say("done")])))
        await carry_out(replace(bench.services, pipe=pipe), id)
    first = next(waiting for waiting in pipe.waiting if '"run_started"' in waiting)
    assert '"turn_started"' not in first


@pytest.mark.requirement("P-12", "S002-055", "S002-063")
async def test_each_step_starts_and_ends_under_the_same_id(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE, READ], [say("done")]))
    events = [envelope.event for envelope in await bench.events(result.delegation_id)]
    started = [event.step.id for event in events if isinstance(event, StepStarted)]
    ended = [event.step for event in events if isinstance(event, StepCompleted)]
    assert started == [step.id for step in ended]
    assert [(step.tool_name, step.type, step.status) for step in ended] == [
        ("write_file", "write", StepStatus.COMPLETED),
        ("read_file", "read", StepStatus.COMPLETED),
    ]


@pytest.mark.requirement("S000-106")
async def test_calls_that_change_something_run_in_the_order_of_asking(bench: Bench, tmp_path: Path) -> None:
    asked = [call("bash", command=f"echo {n} >> log.txt; cat log.txt") for n in range(3)]
    result = await bench.run(model=script(tmp_path, asked, [say("done")]))
    answers = (await history_of(bench, result))[2]["content"]
    assert [block["content"].split() for block in answers] == [["0"], ["0", "1"], ["0", "1", "2"]]


@pytest.mark.requirement("S002-058")
async def test_a_run_whose_steps_failed_can_still_be_done(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [call("read_file", path="none")], [say("It is not there.")]))
    assert (result.success, len(result.errors)) == (True, 1)


@pytest.mark.requirement("P-13")
async def test_the_events_of_a_run_are_numbered_without_gaps_and_end_with_its_result(
    bench: Bench, tmp_path: Path
) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE], [say("done")]))
    events = await bench.events(result.delegation_id)
    assert [envelope.seq for envelope in events] == list(range(1, len(events) + 1))
    assert [envelope.event.type for envelope in events] == [
        "run_queued",
        "run_started",
        "turn_started",
        "replied",
        "step_started",
        "step_completed",
        "turn_started",
        "replied",
        "run_finished",
    ]


@pytest.mark.requirement("S002-060")
async def test_the_details_are_one_line_a_step(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE, call("read_file", path="none")], [say("done")]))
    first, second = result.details.splitlines()
    assert first.startswith("1. [turn 1] ✓ write a.txt")
    assert second.startswith("2. [turn 1] ✗ read none — File not found: none")


@pytest.mark.requirement("P-10", "S000-110")
async def test_what_goes_wrong_with_a_call_is_an_answer_and_the_run_goes_on(bench: Bench, tmp_path: Path) -> None:
    wrong = [call("no_such_tool"), call("read_file", nothing=1), call("read_file", path="../out"), WRITE]
    result = await bench.run(model=script(tmp_path, wrong, [say("done")]), tools=["read_file", "write_file"])
    assert result.termination_reason == "completed"
    answers = [block["content"] for block in (await history_of(bench, result))[2]["content"]]
    assert answers[0].startswith("Error: there is no tool 'no_such_tool'")
    assert "Known parameters: path" in answers[1]
    assert answers[2].startswith("Error: ")
    assert not answers[3].startswith("Error: ")
    assert (len(result.errors), result.tool_call_count) == (3, 4)


async def test_read_only_mode_denies_what_changes_files_and_reports_it(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE], [say("done")]), approval_mode="readOnly")
    assert result.file_changes == []
    assert "read-only" in result.errors[0]


@pytest.mark.requirement("S002-056")
async def test_a_turn_without_calls_ends_the_run(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [say("Nothing to do.")], [WRITE]))
    assert (result.turn_count, result.tool_call_count, result.success) == (1, 0, True)


async def test_a_model_that_is_away_ends_the_run_with_the_reason_and_the_work_so_far(
    bench: Bench, tmp_path: Path
) -> None:
    gone = {"blocks": [say("never")], "faults": [{"kind": "unavailable", "message": "key is wrong"}]}
    result = await bench.run(model=script(tmp_path, [WRITE], gone))
    assert result.termination_reason == "model_unavailable"
    assert "key is wrong" in result.summary
    assert result.files_modified == ["a.txt"]


async def test_a_retried_model_call_is_an_event_and_counts_once(bench: Bench, tmp_path: Path) -> None:
    turn = {"blocks": [say("done")], "faults": [{"kind": "cut", "message": "overloaded"}]}
    result = await bench.run(model=script(tmp_path, turn))
    types = [envelope.event.type for envelope in await bench.events(result.delegation_id)]
    assert types == ["run_queued", "run_started", "turn_started", "model_retried", "replied", "run_finished"]
    assert result.turn_count == 1


async def test_the_source_of_a_workspace_is_never_touched(bench: Bench, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("before\n")
    edit = call("edit_file", path="a.txt", old_string="before", new_string="after")
    model = script(tmp_path, [edit], [say("done")])
    result = await bench.run(model=model, workspace={"kind": "directory", "path": str(source)})
    assert (source / "a.txt").read_text() == "before\n"
    assert [(change.path, change.change) for change in result.file_changes] == [("a.txt", "modified")]


async def test_a_workspace_that_cannot_be_made_is_a_refusal(bench: Bench, tmp_path: Path) -> None:
    missing = {"kind": "directory", "path": str(tmp_path / "none")}
    result = await bench.run(model=script(tmp_path, [say("done")]), workspace=missing)
    assert result.termination_reason == "refused"
    assert str(tmp_path / "none") in result.summary


@pytest.mark.requirement("P-03")
async def test_two_runs_at_once_share_nothing(bench: Bench, tmp_path: Path) -> None:
    models = [
        script(tmp_path, [call("write_file", path="mine.txt", content=str(n))], [READ], [say(f"run {n}")])
        for n in range(2)
    ]
    results = await asyncio.gather(*(bench.run(model=model) for model in models))
    assert [result.summary for result in results] == ["run 0", "run 1"]
    files = [bench.settings.workspaces / result.delegation_id / "files" / "mine.txt" for result in results]
    assert [file.read_text() for file in files] == ["0", "1"]
