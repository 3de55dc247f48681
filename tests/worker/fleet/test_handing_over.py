"""A run goes from worker to worker: who may hand it back, how often it is tried, and what is logged only once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.events import Envelope, Heartbeat, StepCompleted, StepStarted
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import channel, record_key
from deputize.shared.runs.record import Claim
from deputize.worker.task import carry_out, run_of
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.waiting import until

HOLD = call("bash", command="touch held; exec sleep 1000")
UNTIL_GO = call("bash", command="touch held; until [ -e go ]; do sleep 0.02; done")


async def lapsed(bench: Bench, id: str) -> Claim:
    """An attempt whose worker was lost."""
    claim = await bench.services.claim(id)
    assert claim is not None
    await bench.lose(id)
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
async def test_a_run_has_as_many_attempts_as_the_setting_allows_and_not_one_fewer(
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
    await bench.interrupt(id, lambda: [*bench.settings.workspaces.rglob("held")])
    await carry_out(bench.services, id)
    events = [envelope.event for envelope in await bench.events(id)]
    for kind in (StepStarted, StepCompleted):
        told = Counter(event.step.id for event in events if isinstance(event, kind))
        assert [*told.values()] == [1, 1, 1, 1]
    assert (await bench.result(id)).termination_reason == "completed"


async def test_a_run_that_is_under_way_reports_it_repeatedly_and_none_of_it_is_kept(
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
        running = asyncio.create_task(run_of(claim, bench.services, stop, heartbeat_seconds=0.02).execute())
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
        running = asyncio.create_task(run_of(claim, bench.services, stop, heartbeat_seconds=0.02).execute())
        seen = await until(partial(_elapsed, bench, id))
        await until(partial(_elapsed, bench, id, seen + 1))
        running.cancel()
        await asyncio.wait({running})


@pytest.mark.requirement("P-16")
@pytest.mark.parametrize("calls", [[], [call("write_file", path="after.txt", content="")], [call("glob", pattern="*")]])
async def test_a_worker_that_stops_begins_no_further_turn_or_call_and_leaves_none_in_doubt(
    bench: Bench, tmp_path: Path, calls: list[Any]
) -> None:
    id = await bench.accept(DelegationRequest(task="t", model=script(tmp_path, [UNTIL_GO, *calls], [say("done")])))
    running, files = asyncio.create_task(carry_out(bench.services, id)), bench.settings.workspaces / id / "files"
    await until((files / "held").exists)
    bench.services.hands_over.set()
    (files / "go").touch()
    assert await running is None
    left = await bench.store.get(id)
    assert (left.status, left.worker, left.progress.turn) == ("queued", None, 1)
    assert [(step.tool_name, step.error) for step in await bench.steps(id)] == [("bash", None)]
    assert not (files / "after.txt").exists()
    bench.services.hands_over.clear()  # another worker
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.attempts, result.errors) == ("completed", 2, [])
    assert (result.turn_count, result.tool_call_count) == (2, 1 + len(calls))
    started = [step.step.id for step in await bench.seen(id, StepStarted)]
    assert started == [step.id for step in await bench.steps(id)]


async def test_a_worker_that_stops_makes_the_final_turn_of_a_run_whose_limit_is_reached(
    bench: Bench, tmp_path: Path
) -> None:
    model = script(tmp_path, [UNTIL_GO], [say("never")], summary="At my limit.")
    id = await bench.accept(DelegationRequest(task="t", model=model, limits=Limits(max_turns=1)))
    running, files = asyncio.create_task(carry_out(bench.services, id)), bench.settings.workspaces / id / "files"
    await until((files / "held").exists)
    bench.services.hands_over.set()
    (files / "go").touch()
    ended = await running
    assert ended is not None
    assert (ended.termination_reason, ended.summary, ended.attempts) == ("max_turns", "At my limit.", 1)


async def _elapsed(bench: Bench, id: str, least: int = 1) -> int | None:
    elapsed = (await bench.store.get(id)).progress.elapsed_ms
    return elapsed if elapsed >= least else None


async def _interrupted(bench: Bench, id: str, held: Path) -> None:
    """An attempt that is handed over in the middle of its command."""
    await bench.interrupt(id, held.exists)
    held.unlink()


@pytest.mark.requirement("P-07")
async def test_the_time_of_a_run_is_one_whole_however_often_it_is_handed_over(bench: Bench, tmp_path: Path) -> None:
    elapsed = [0]
    hold = call("bash", command="sleep 0.3; touch held; exec sleep 1000")
    model = script(tmp_path, *[[hold]] * 3, [say("done")])
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    for attempt in range(1, 4):
        folder = bench.settings.workspaces / id / ("files" if attempt == 1 else f"files.{attempt}")
        await _interrupted(bench, id, folder / "held")
        elapsed.append(int(await bench.store.redis.hget(record_key(id), "elapsed_ms")))
    assert all(later - earlier >= 300 for earlier, later in pairwise(elapsed))
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.attempts) == ("completed", 4)
    assert result.execution_time_ms >= elapsed[-1]


@pytest.mark.requirement("P-07")
async def test_the_time_until_the_last_renewal_of_a_lost_worker_counts(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home", lease_seconds=3) as bench:
        id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, [HOLD], [say("done")])))
        running = asyncio.create_task(carry_out(bench.services, id))
        kept = partial(bench.store.redis.hget, record_key(id), "elapsed_ms")
        first = int(await until(kept))

        async def renewed() -> bool:
            return int(await kept()) > first

        await until(renewed)
        await bench.store.redis.hset(record_key(id), mapping={"status": "queued", "fence": "", "ended": "lost"})
        await asyncio.wait({running})
        seen = int(await kept())
        await carry_out(bench.services, id)
        assert (await bench.result(id)).execution_time_ms >= seen > first


@pytest.mark.requirement("P-07")
@pytest.mark.parametrize(
    ("used", "summary"), [(95_000, "Time is up."), (100_000, "Stopped: timeoutSeconds 100 reached.")]
)
async def test_an_attempt_without_time_ends_the_run_and_settles_open_calls(
    bench: Bench, tmp_path: Path, used: int, summary: str
) -> None:
    read, write = call("glob", pattern="*"), call("write_file", path="never.txt", content="x")
    model = script(tmp_path, [read, HOLD, write], [say("never")], summary="Time is up.")
    request = {"task": "do it", "model": model, "limits": {"timeoutSeconds": 100}}
    id = await bench.accept(DelegationRequest.model_validate(request))
    await _interrupted(bench, id, bench.settings.workspaces / id / "files/held")
    await bench.store.redis.hset(record_key(id), "elapsed_ms", used)
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.summary, result.tool_call_count >= 2) == ("timeout", summary, True)
    assert result.execution_time_ms >= used
    events = [envelope.event for envelope in await bench.events(id)]
    started, ended = ([each.step for each in events if isinstance(each, kind)] for kind in (StepStarted, StepCompleted))
    assert [step.id for step in started] == [step.id for step in ended]
    assert ("outcome unknown" in (ended[1].error or ""), ended[0].error) == (True, None)
    if history := [entry for entry in (await bench.store.conversation(id))[0] if "tool_result" in entry]:
        assert [word in history[0] for word in ("outcome unknown", "not executed")] == [True, True]


@pytest.mark.requirement("P-20")
async def test_a_run_that_is_handed_over_in_its_last_turn_gets_no_other_one(bench: Bench, tmp_path: Path) -> None:
    circles = await bench.run(model=script(tmp_path, *[[call("list_directory", path=".")]] * 15), tools=["*"])
    assert circles.termination_reason == "loop_detected"
    reached = json.loads(await bench.store.redis.hget(record_key(circles.delegation_id), "checkpoint"))["reached"]
    write = call("write_file", path="a", content="")
    model = script(tmp_path, [HOLD], [write], [say("done")], summary="In circles.")
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    await _interrupted(bench, id, bench.settings.workspaces / id / "files/held")
    kept = json.loads(await bench.store.redis.hget(record_key(id), "checkpoint"))
    await bench.store.redis.hset(record_key(id), "checkpoint", json.dumps(kept | {"reached": reached}))
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.summary, result.files_modified) == ("loop_detected", "In circles.", [])
