"""What a run is and does beside its loop: a slot that it releases while it waits, and its progress."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from deputize.shared.delegation import Status, TerminationReason, ToolAgentResult
from deputize.shared.errors import ErrorType
from deputize.worker.core.emit import Emitter
from deputize.worker.models.base import Call
from deputize.worker.redis_record import RedisRecord
from deputize.worker.tools.base import AnyTool, ToolResult
from deputize.worker.tools.edit_file import EditFile
from deputize.worker.tools.read_file import ReadFile
from deputize.worker.tools.write_file import WriteFile
from tests.worker.claimed import claimed, context_of


class Slots:
    """How many slots are given back at the moment."""

    def __init__(self) -> None:
        self.free = 0

    @contextmanager
    def waiting(self) -> Generator[None]:
        self.free += 1
        try:
            yield
        finally:
            self.free -= 1


async def test_a_run_waits_once_however_many_waits_it_has() -> None:
    slots, seen = Slots(), list[Any]()
    async with claimed() as (store, pipe, claim):
        emit = Emitter(RedisRecord(pipe), claim, [], lambda: None)
        run = context_of(claim, emit, free_slot=slots.waiting)

        async def look() -> None:
            await emit.settled()
            seen.append((slots.free, (await store.get(claim.id)).status))

        async def stopped() -> None:
            with run.waits.without_slot("permission"):
                await look()
                raise ValueError("stopped")

        for _ in range(2):
            with run.waits.without_slot("permission"):
                await look()
                with pytest.raises(ValueError, match="stopped"):
                    await stopped()
                await look()
            await look()
        emit.close()
    assert seen == [(1, "waiting"), (1, "waiting"), (1, "waiting"), (0, "running")] * 2


async def test_progress_names_the_last_step_that_ended_without_secrets() -> None:
    seen = list[Any]()
    async with claimed() as (_, pipe, claim):
        emit = Emitter(RedisRecord(pipe), claim, ["token-of-the-operator"], lambda: None)
        run = context_of(claim, emit)
        for name in ("", "first", "token-of-the-operator", "x" * 200):
            if name:
                run.steps.refuse(Call(id=name, key=name, name=name, arguments={}), ToolResult(error="no"))
            for _ in range(2):
                progress = run.progress
                seen.append((progress.last_tool, progress.last_step))
        emit.close()
    long = "x" * 200
    wanted = [(None, None), ("first", "first"), ("***", "***"), (long, f"{long[:159]}…")]
    assert seen == [each for each in wanted for _ in range(2)]


FAILED = ToolResult(error="no")
MAKE = Call(id="1", key="1", name="bash", arguments={"command": "make"})


@pytest.mark.parametrize(
    ("later", "recovered"),
    [
        (None, 0),
        (({"command": "make"}, ToolResult(content="ok")), 1),
        (({"command": "make"}, FAILED), 0),
        (({"command": "ls"}, ToolResult(content="ok")), 0),
    ],
)
async def test_a_failed_call_has_recovered_only_where_the_same_call_succeeded_later(
    later: tuple[dict[str, Any], ToolResult] | None, recovered: int
) -> None:
    async with claimed() as (_, pipe, claim):
        emit = Emitter(RedisRecord(pipe), claim, [], lambda: None)
        steps = context_of(claim, emit).steps
        steps.end(steps.start(MAKE, None, "make"), FAILED)
        if later:
            call = Call(id="2", key="2", name="bash", arguments=later[0])
            steps.end(steps.start(call, None, "again"), later[1])
        emit.close()
    assert steps.counts["recovered_call_count"] == recovered


@pytest.mark.parametrize(
    ("later", "path", "recovered"),
    [
        (WriteFile(), "a.py", 1),
        (EditFile(), "a.py", 1),
        (EditFile(), "b.py", 0),
        (ReadFile(), "a.py", 0),
    ],
)
async def test_a_failed_edit_has_recovered_where_the_same_file_was_changed_later(
    later: AnyTool, path: str, recovered: int
) -> None:
    async with claimed() as (_, pipe, claim):
        emit = Emitter(RedisRecord(pipe), claim, [], lambda: None)
        steps = context_of(claim, emit).steps
        failed = Call(id="1", key="1", name="edit_file", arguments={"path": "a.py", "old": "x", "new": "y"})
        steps.end(steps.start(failed, EditFile(), "edit"), FAILED)
        call = Call(id="2", key="2", name=later.name, arguments={"path": path})
        steps.end(steps.start(call, later, "again"), DONE)
        emit.close()
    assert steps.counts["recovered_call_count"] == recovered


DENIED = ToolResult(error="denied", error_type=ErrorType.PERMISSION_DENIED)
DONE = ToolResult(content="done")
CHILD = ToolAgentResult(delegation_id="dlg_2", status=Status.SUCCEEDED, termination_reason=TerminationReason.COMPLETED)
CHILD_DENIED = CHILD.model_copy(update={"only_denied": True, "denied_call_count": 1})


@pytest.mark.parametrize(
    ("steps", "only_denied"),
    [
        ([], False),
        ([("bash", DONE)], False),
        ([("bash", FAILED)], False),
        ([("submit_result", DONE)], False),
        ([("bash", DENIED)], True),
        ([("bash", DENIED), ("read_file", FAILED), ("submit_result", DONE)], True),
        ([("bash", DENIED), ("read_file", DONE)], False),
        ([("call_subagent", ToolResult(data=CHILD_DENIED))], True),
        ([("call_subagent", ToolResult(data=CHILD_DENIED)), ("bash", DENIED)], True),
        ([("call_subagent", ToolResult(data=CHILD_DENIED)), ("bash", DONE)], False),
        ([("call_subagent", ToolResult(data=CHILD)), ("bash", DENIED)], False),
    ],
)
async def test_a_result_states_whether_calls_were_denied_and_no_other_one_succeeded(
    steps: list[tuple[str, ToolResult]], only_denied: bool
) -> None:
    async with claimed() as (_, pipe, claim):
        run = context_of(claim, Emitter(RedisRecord(pipe), claim, [], lambda: None))
        for number, (name, result) in enumerate(steps):
            started = run.steps.start(Call(id=str(number), key=str(number), name=name, arguments={}), None, name)
            run.steps.end(started, result, executed=result is not DENIED)
        run.emit.close()
    assert run.of_result["only_denied"] is only_denied


async def test_what_a_run_was_stopped_in_stays_known_and_nothing_else() -> None:
    async with claimed() as (_, pipe, claim):
        emit = Emitter(RedisRecord(pipe), claim, [], lambda: None)
        run = context_of(claim, emit)

        async def wait(what: str) -> None:
            with run.waits.noted(what):
                begun.set()
                await asyncio.Event().wait()

        with run.waits.noted("a tool"):
            assert run.waits.awaited == ["a tool"]
        with pytest.raises(ValueError, match="failed"), run.waits.noted("a tool that fails"):
            raise ValueError("failed")
        begun = asyncio.Event()
        waiting = asyncio.create_task(wait("a child"))
        await begun.wait()
        waiting.cancel()
        await asyncio.wait({waiting})
        emit.close()
    assert run.waits.awaited == ["a child"]
