"""8. Crash and resume: deliveries are at least once, effects are not.

One worker is killed, once, while it carries out all of ``RUNS``; another takes them over, and each test looks at one.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from deputize import Orchestrator
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.events import RunResumed
from deputize.shared.settings import Settings
from tests.fundamentals.stack import until_file
from tests.fundamentals.visible import types, visible
from tests.runs.bench import call, say, script
from tests.waiting import until

WRITE = call("write_file", path="made.txt", content="once\n")
APPEND = call("bash", command="echo once >> log.txt")
HOLD = call("bash", command="touch held; exec sleep 1000")
"""The command during which the worker is killed."""
LOOK = call("bash", command="cat log.txt")
SPENT = {"input": 1000, "output": 100}

RUNS: dict[str, dict[str, Any]] = {
    "written before": {"turns": [[WRITE], [HOLD], [say("Done.")]]},
    "answered in the same turn": {"turns": [[APPEND, HOLD], [LOOK], [say("{{result}}")]]},
    "cut off": {"turns": [[HOLD], [say("{{result}}")]]},
    "paid for": {"turns": [{"blocks": [block], "usage": SPENT} for block in (APPEND, HOLD, say("Done."))]},
    "limited": {"turns": [[APPEND], [HOLD], [LOOK], [say("never")]], "limits": {"max_turns": 3}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def survived(settings: Settings, tmp_path_factory: Any) -> AsyncIterator[dict[str, ToolAgentResult]]:
    """The results of RUNS, by name."""
    folder: Path = tmp_path_factory.mktemp("scripts")
    async with Orchestrator(settings) as orchestrator:
        started: dict[str, str] = {}
        for name, run in RUNS.items():
            model = script(folder, *run["turns"], summary="As far as I came.", price={"input": 2, "output": 10})
            started[name] = (await orchestrator.start(name, model=model, limits=run.get("limits", {}))).id
        await asyncio.gather(*(until_file(settings, id, "held") for id in started.values()))
        (worker,) = await orchestrator.service.workers()
        os.kill(worker.pid, signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{worker.pid}").exists())
        started["handed over while nobody worked"] = (
            await orchestrator.start("Say hello.", model=script(folder, [say("Hello.")]))
        ).id
        results = await asyncio.gather(*(orchestrator.result(id) for id in started.values()))
        yield dict(zip(started, results, strict=True))


Results = dict[str, ToolAgentResult]
IN_DOUBT = (
    "outcome unknown: the worker was lost while this call was under way. It may have happened, wholly or in part: look "
    "at the workspace before you repeat it."
)


async def test_a_run_whose_worker_was_killed_goes_on_where_it_was(survived: Results) -> None:
    assert visible(survived["written before"]) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "Done.",
        "filesModified": ["made.txt", "held"],
        "fileChanges": [
            {"path": "made.txt", "change": "created", "addedLines": 1},
            {"path": "held", "change": "created"},
        ],
        "errors": [
            f"$ touch held; exec sleep 1000: {IN_DOUBT}",
        ],
        "toolCallCount": 2,
        "turnCount": 3,
        "attempts": 2,
    }


async def test_its_events_go_on_without_a_gap_and_say_that_it_was_resumed(
    survived: Results, orchestrator: Orchestrator
) -> None:
    events = await orchestrator.service.events(survived["written before"].delegation_id)
    assert [envelope.seq for envelope in events] == list(range(1, len(events) + 1))
    assert types(events) == [
        "run_queued",
        "run_started",
        "turn_started",
        "replied",
        "step_started",
        "step_completed",
        "turn_started",
        "replied",
        "step_started",
        "run_resumed",
        "step_completed",
        "turn_started",
        "replied",
        "run_finished",
    ]
    assert [e.event.from_turn for e in events if isinstance(e.event, RunResumed)] == [2]


async def test_what_was_done_is_not_done_again(survived: Results) -> None:
    result = survived["answered in the same turn"]
    assert (result.summary, result.attempts) == ("once", 2)


async def test_a_command_that_was_cut_off_is_not_repeated_and_the_model_is_informed(survived: Results) -> None:
    assert survived["cut off"].summary == f"Error: {IN_DOUBT}"


async def test_every_turn_is_paid_for_once(survived: Results) -> None:
    result = survived["paid for"]
    assert result.attempts == 2
    assert result.usage.to_dict() == {
        "inputTokens": 3000,
        "outputTokens": 300,
        "cacheReadTokens": 0,
        "cacheWriteTokens": 0,
        "cacheWrite1hTokens": 0,
        "costUsd": pytest.approx(0.009),
        "cacheSavedUsd": 0.0,
        "cachedShare": 0.0,
    }


async def test_limits_hold_over_all_attempts_together(survived: Results) -> None:
    assert visible(survived["limited"]) == {
        "status": "failed",
        "success": False,
        "mark": "failed",
        "terminationReason": "max_turns",
        "summary": "As far as I came.",
        "filesModified": ["log.txt", "held"],
        "fileChanges": [
            {"path": "log.txt", "change": "created", "addedLines": 1},
            {"path": "held", "change": "created"},
        ],
        "errors": [
            f"$ touch held; exec sleep 1000: {IN_DOUBT}",
        ],
        "toolCallCount": 3,
        "turnCount": 3,
        "attempts": 2,
    }


async def test_what_is_handed_over_while_no_worker_is_there_is_done_by_the_next_one(survived: Results) -> None:
    assert visible(survived["handed over while nobody worked"]) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "Hello.",
        "turnCount": 1,
    }
