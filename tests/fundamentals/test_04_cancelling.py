"""4. Cancelling: it takes effect at once, keeps what was done, and can be repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize import Orchestrator
from deputize.shared.events import TurnStarted
from deputize.shared.settings import Settings
from tests.fundamentals.stack import make_file, until_event, until_file
from tests.fundamentals.visible import types, visible
from tests.runs.bench import call, say, script


async def test_a_delegation_that_waits_for_a_worker_is_cancelled_at_once(redis_url: str, tmp_path: Path) -> None:
    without_workers = Settings.load(environ={}, home=tmp_path, redis_url=redis_url)
    async with Orchestrator(without_workers) as orchestrator:
        started = await orchestrator.start("Say hello.")
        cancelled = await orchestrator.cancel(started.id)
        assert cancelled.result is not None
        assert visible(cancelled.result) == {
            "status": "cancelled",
            "success": False,
            "mark": "cancelled",
            "terminationReason": "cancelled",
            "summary": "Cancelled before it was started.",
            "attempts": 0,
        }
        assert types(await orchestrator.service.events(started.id)) == ["run_queued", "run_finished"]


@pytest.mark.requirement("P-15")
async def test_a_running_command_is_ended_and_what_it_did_so_far_is_reported(
    orchestrator: Orchestrator, settings: Settings, tmp_path: Path
) -> None:
    hold = call("bash", command="echo half > work.txt; exec sleep 1000")
    started = await orchestrator.start("Work.", model=script(tmp_path, [say("I begin."), hold], [say("never")]))
    await until_file(settings, started.id, "work.txt", "half\n")
    await orchestrator.cancel(started.id)
    result = await orchestrator.result(started.id)
    assert len(result.reaped) == 1  # the command, by its name
    assert visible(result) == {
        "status": "cancelled",
        "success": False,
        "mark": "cancelled",
        "terminationReason": "cancelled",
        "summary": "I begin.",
        "filesModified": ["work.txt"],
        "fileChanges": [{"path": "work.txt", "change": "created", "addedLines": 1}],
        "errors": [
            (
                "$ echo half > work.txt; exec sleep 1000: outcome unknown: the run was stopped while this call "
                "was under way. It may have happened, wholly or in part: look at the workspace before you "
                "repeat it."
            ),
        ],
        "toolCallCount": 1,
        "turnCount": 1,
        "reaped": result.reaped,
    }
    assert "+half" in await orchestrator.service.patch(started.id)


@pytest.mark.requirement("P-15")
async def test_a_model_that_is_being_asked_is_not_waited_for(orchestrator: Orchestrator, tmp_path: Path) -> None:
    started = await orchestrator.start("Think.", model=script(tmp_path, {"blocks": [say("never")], "delay": 1000}))
    await until_event(orchestrator, started.id, TurnStarted)
    await orchestrator.cancel(started.id)
    assert visible(await orchestrator.result(started.id)) == {
        "status": "cancelled",
        "success": False,
        "mark": "cancelled",
        "terminationReason": "cancelled",
        "turnCount": 1,
    }


async def test_to_cancel_twice_is_to_cancel_once(orchestrator: Orchestrator, tmp_path: Path) -> None:
    started = await orchestrator.start("Think.", model=script(tmp_path, {"blocks": [say("never")], "delay": 1000}))
    await until_event(orchestrator, started.id, TurnStarted)
    await orchestrator.cancel(started.id)
    result = await orchestrator.result(started.id)
    again = await orchestrator.cancel(started.id)
    assert (again.status, again.result) == ("cancelled", result)
    assert types(await orchestrator.service.events(started.id)).count("run_finished") == 1


async def test_what_has_ended_is_not_changed_by_cancelling_it(orchestrator: Orchestrator, tmp_path: Path) -> None:
    result = await orchestrator.delegate("Say hello.", model=script(tmp_path, [say("Hello.")]))
    late = await orchestrator.cancel(result.delegation_id)
    assert (late.status, late.result) == ("succeeded", result)


async def test_of_many_only_the_one_that_was_named_is_cancelled(
    orchestrator: Orchestrator, settings: Settings, tmp_path: Path
) -> None:
    wait = call("bash", command="touch begun; until [ -e go ]; do sleep 0.1; done")
    one, other = [await orchestrator.start("Wait.", model=script(tmp_path, [wait], [say("Done.")])) for _ in range(2)]
    for each in (one, other):
        await until_file(settings, each.id, "begun")
    await orchestrator.cancel(one.id)
    assert (await orchestrator.result(one.id)).termination_reason == "cancelled"
    make_file(settings, other.id, "go")
    assert (await orchestrator.result(other.id)).termination_reason == "completed"
