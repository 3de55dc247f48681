"""Attempts: only lost workers count, progress forgives them, and whoever gives a run up still tells the facts."""

from __future__ import annotations

import asyncio
from itertools import chain
from pathlib import Path
from typing import Any

from deputize.shared.events import RunResumed, StepCompleted, StepStarted
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import LEASES, record_key
from deputize.worker.task import carry_out
from tests.running import Bench, call, open_bench, say, script
from tests.waiting import until

WRITE = call("write_file", path="a.txt", content="one\ntwo\n")


def hold(turn: int) -> list[dict[str, Any]]:
    """A turn whose command shows that it has begun, and goes on."""
    return [call("bash", command=f"touch begun-{turn}; exec sleep 1000")]


async def begin(bench: Bench, id: str, turn: int) -> asyncio.Task[Any]:
    """An attempt that has come to the command which holds that turn."""
    running = asyncio.create_task(carry_out(bench.services, id))
    folder = bench.settings.workspaces / id
    await until(lambda: list(folder.glob(f"files*/begun-{turn}")))
    return running


async def stop(running: asyncio.Task[Any]) -> None:
    """What a worker does at SIGTERM."""
    running.cancel()
    await asyncio.wait({running})


async def lose(bench: Bench, id: str) -> None:
    """What a worker that was killed leaves: a lease that lapses."""
    await bench.store.redis.zadd(LEASES, {id: 1})
    assert [one.kind for one in await bench.store.reap(30)] == ["lapsed"]


async def lost_count(bench: Bench, id: str) -> str:
    return await bench.store.redis.hget(record_key(id), "lost") or "0"


async def resumed(bench: Bench, id: str) -> list[str]:
    return [e.event.reason for e in await bench.events(id) if isinstance(e.event, RunResumed)]


async def test_any_number_of_orderly_stops_costs_a_run_nothing(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, *map(hold, range(5)), [say("done")])
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    for turn in range(5):
        await stop(await begin(bench, id, turn))
    assert await carry_out(bench.services, id) == "completed"
    result = await bench.result(id)
    assert (result.attempts, await lost_count(bench, id)) == (6, "0")
    assert await resumed(bench, id) == ["the attempt before was handed over: its worker was stopped"] * 5
    steps = [step for step in result.errors if "outcome unknown" in step]
    assert len(steps) == 5
    assert all("handed over to another worker" in step and "lost" not in step for step in steps)


async def test_workers_lost_in_a_row_end_the_run_and_attempts_counts_what_ran(bench: Bench, tmp_path: Path) -> None:
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, *map(hold, range(3)))))
    for turn in range(3):
        running = await begin(bench, id, turn)
        await lose(bench, id)
        await stop(running)
    assert await resumed(bench, id) == ["the attempt before lost its worker"] * 2
    assert await carry_out(bench.services, id) == "worker_lost"
    result = await bench.result(id)
    assert (result.attempts, result.turn_count, result.tool_call_count) == (3, 3, 3)
    assert result.errors[0] == "3 workers in a row were lost while they carried this out; it is given up"
    events = [envelope.event for envelope in await bench.events(id)]
    started, ended = ([e.step.id for e in events if isinstance(e, kind)] for kind in (StepStarted, StepCompleted))
    assert started == ended
    assert "the worker was lost while this call was under way" in result.errors[-1]


async def test_a_completed_turn_forgives_the_workers_lost_before_it(bench: Bench, tmp_path: Path) -> None:
    look = call("glob", pattern="*")
    model = script(tmp_path, *chain.from_iterable((hold(turn), [look]) for turn in (0, 2, 4, 6)), [say("done")])
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    for turn in (0, 2, 4, 6):
        running = await begin(bench, id, turn)
        await lose(bench, id)
        await stop(running)
        assert await lost_count(bench, id) == "1"
    assert await carry_out(bench.services, id) == "completed"
    assert (await bench.result(id)).attempts == 5


async def test_the_result_of_a_run_that_is_given_up_has_its_files_steps_and_patch(bench: Bench, tmp_path: Path) -> None:
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, [WRITE], hold(1))))
    running = await begin(bench, id, 1)
    await lose(bench, id)
    await stop(running)
    await bench.store.redis.hset(record_key(id), "lost", bench.settings.max_attempts)
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.files_modified) == ("worker_lost", ["a.txt", "begun-1"])
    assert [(change.change, change.added_lines) for change in result.file_changes] == [("created", 2), ("created", 0)]
    assert "+one" in await bench.store.patch(id)
    assert "1. [turn 1] ✓ " in result.details


async def test_a_resumed_run_that_never_gets_its_parts_still_reports_its_files(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [WRITE], hold(1))
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    await stop(await begin(bench, id, 1))
    Path(model.removeprefix("scripted:")).unlink()  # the next worker cannot open the model
    async with open_bench(bench.settings.redis_url or "", bench.settings.home, name="worker-2") as other:
        await carry_out(other.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.files_modified) == ("model_unavailable", ["a.txt", "begun-1"])
    assert "1. [turn 1] ✓ " in result.details


async def test_files_that_cannot_be_read_are_an_error_and_not_an_empty_list(bench: Bench, tmp_path: Path) -> None:
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, [WRITE], hold(1))))
    await stop(await begin(bench, id, 1))
    await bench.store.redis.hset(record_key(id), "lost", bench.settings.max_attempts)
    async with open_bench(bench.settings.redis_url or "", tmp_path / "elsewhere", name="worker-2") as other:
        await carry_out(other.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.files_modified) == ("worker_lost", [])
    assert "which files changed is not known to worker-2: No such file or directory" in result.errors[1]
    assert result.truncated


async def test_a_run_cancelled_between_two_attempts_reports_what_it_did(bench: Bench, tmp_path: Path) -> None:
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, [WRITE], hold(1))))
    await stop(await begin(bench, id, 1))
    assert await bench.store.cancel(id) == "asked"
    assert [one.id for one in await bench.store.reap(30)] == [id]  # a ticket for it goes out at once
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.status, result.files_modified, result.turn_count) == ("cancelled", ["a.txt", "begun-1"], 2)
