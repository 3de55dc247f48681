"""A run goes from worker to worker: who may hand it back, how often it is tried, and what is said only once."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from deputize.shared.events import Envelope, Heartbeat, StepCompleted, StepStarted
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import LEASES, channel
from deputize.shared.runs.record import Claim
from deputize.worker.run import Run
from deputize.worker.task import carry_out
from tests.running import Bench, call, say, script
from tests.waiting import until

HOLD = call("bash", command="touch held; exec sleep 1000")


async def lapsed(bench: Bench, id: str) -> Claim:
    """An attempt whose worker was lost."""
    claim = await bench.services.claim(id)
    assert claim is not None
    await bench.store.redis.zadd(LEASES, {id: 1})

    async def queued() -> bool:
        await bench.store.reap(30)
        return (await bench.store.get(id)).status == "queued"

    await until(queued)
    return claim


@pytest.mark.requirement("P-16")
async def test_a_worker_that_lost_its_lease_cannot_hand_the_run_back(bench: Bench) -> None:
    id = await bench.accept(DelegationRequest(task="do it"))
    old = await lapsed(bench, id)
    new = await bench.services.claim(id)
    assert new is not None
    assert await bench.services.release(old) == "fenced"
    assert ((await bench.store.get(id)).status, (await bench.store.get(id)).attempt) == ("running", 2)
    assert await bench.services.release(new) == "released"
    assert ((await bench.store.get(id)).status, (await bench.store.get(id)).worker) == ("queued", None)
    await until(lambda: [ticket.id for ticket in bench.sent][-1:] == [id])  # due at once
    await bench.store.cancel(id)
    await carry_out(bench.services, id)


@pytest.mark.parametrize(("lost", "ending"), [(2, "completed"), (3, "worker_lost")])
async def test_a_run_has_as_many_attempts_as_the_setting_says_and_not_one_fewer(
    bench: Bench, tmp_path: Path, lost: int, ending: str
) -> None:
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, [say("done")])))
    assert bench.settings.max_attempts == 3
    for _ in range(lost):
        await lapsed(bench, id)
    await carry_out(bench.services, id)
    assert (await bench.result(id)).termination_reason == ending


@pytest.mark.requirement("P-12")
async def test_a_step_is_announced_once_whichever_attempt_ends_it(bench: Bench, tmp_path: Path) -> None:
    refused, read = call("no_such_tool"), call("glob", pattern="*")
    turns = [[refused, read, call("write_file", path="a.txt", content="x"), HOLD], [say("done")]]
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, *turns)))
    running = asyncio.create_task(carry_out(bench.services, id))
    await until(lambda: [*bench.settings.workspaces.rglob("held")])  # interrupted before, it would begin again
    running.cancel()
    await asyncio.wait({running})
    await carry_out(bench.services, id)
    events = [envelope.event for envelope in await bench.events(id)]
    for kind in (StepStarted, StepCompleted):
        told = Counter(event.step.id for event in events if isinstance(event, kind))
        assert [*told.values()] == [1, 1, 1, 1]
    assert (await bench.result(id)).termination_reason == "completed"


async def test_a_run_that_is_under_way_says_so_again_and_again_and_none_of_it_is_kept(
    bench: Bench, tmp_path: Path
) -> None:
    slow = {"blocks": [say("never")], "delay": 1000}
    id = await bench.accept(
        DelegationRequest(task="do it", model=script(tmp_path, [call("bash", command="true")], slow))
    )
    claim = await bench.services.claim(id)
    assert claim is not None
    beats: list[Heartbeat] = []
    async with bench.services.leases.held(claim) as stop, bench.bus.listen(channel(id)) as inbox:
        running = asyncio.create_task(Run(claim, bench.services, stop, heartbeat_seconds=0.02).execute())
        while len(beats) < 2 or beats[-1].turn < 2:
            if (message := await asyncio.wait_for(inbox.get(), 30)) is not None:
                envelope = Envelope.from_json(message)
                beats += [envelope.event] if isinstance(envelope.event, Heartbeat) else []
        await bench.store.cancel(id)
        await running
    assert (beats[-1].tool_calls, beats[-1].last_tool, beats[-1].elapsed_ms > 0) == (1, "bash", True)
    assert "heartbeat" not in {envelope.event.type for envelope in await bench.events(id)}


async def test_who_asks_in_the_middle_of_a_long_call_sees_how_far_it_is(bench: Bench, tmp_path: Path) -> None:
    slow = {"delay": 30, "blocks": [say("late")]}
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, slow)))
    claim = await bench.services.claim(id)
    assert claim is not None
    async with bench.services.leases.held(claim) as stop:
        running = asyncio.create_task(Run(claim, bench.services, stop, heartbeat_seconds=0.02).execute())
        seen = await until(partial(_elapsed, bench, id))
        await until(partial(_elapsed, bench, id, seen + 1))
        running.cancel()
        await asyncio.wait({running})


async def _elapsed(bench: Bench, id: str, least: int = 1) -> int | None:
    elapsed = (await bench.store.get(id)).progress.elapsed_ms
    return elapsed if elapsed >= least else None
