"""A call that needs permission waits for a person: asked, answered, and what the model learns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deputize.shared.delegation import Status, StepStatus
from deputize.shared.events import (
    PermissionAnswered,
    PermissionRequested,
    ResumedWaiting,
    StepCompleted,
    StepStarted,
    Waiting,
)
from tests.asking import WRITE, answered, asking_bench, begun, questions, until_status
from tests.running import Bench, say, script


@pytest.fixture
async def asking(redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with asking_bench(redis_url, tmp_path / "home") as bench:
        yield bench


@pytest.mark.requirement("S003-003", "S004-035")
async def test_a_call_waits_for_its_answer_and_then_runs(asking: Bench, tmp_path: Path) -> None:
    id, run = await begun(asking, script(tmp_path, [WRITE], [say("done")]))
    (request,) = await questions(asking)
    await until_status(asking, id, Status.WAITING)
    await answered(asking, request, "proceed_once")
    await run
    kinds = StepStarted | PermissionRequested | Waiting | PermissionAnswered | ResumedWaiting | StepCompleted
    found = [envelope.event for envelope in await asking.events(id) if isinstance(envelope.event, kinds)]
    assert [event.type for event in found] == [
        "step_started",
        "permission_requested",
        "waiting",
        "permission_answered",
        "resumed_waiting",
        "step_completed",
    ]
    started, question, waits, report, _, done = found
    assert isinstance(started, StepStarted)
    assert isinstance(question, PermissionRequested)
    assert isinstance(waits, Waiting)
    assert isinstance(report, PermissionAnswered)
    assert isinstance(done, StepCompleted)
    assert (question.permission_id, question.path) == (request.permission_id, [id])
    assert (waits.why, report.outcome, report.by) == ("permission", "proceed_once", "ada")
    assert (started.step.status, done.step.status) == (StepStatus.AWAITING_CONFIRMATION, StepStatus.COMPLETED)
    assert started.step.id == done.step.id == question.step.id
    assert (await asking.result(id)).files_modified == ["a.txt"]
