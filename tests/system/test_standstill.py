"""Event loops that are blocked: for a moment, for good, and what becomes of the call that was to blame."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.runs.keys import LEASES, record_key
from deputize.shared.runs.record import MOST_STARTS
from deputize.shared.runs.store import RENEW, STALLED
from deputize.worker.standby import program
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet, open_fleet
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.requirement("P-16")]
STANDING = "tests.system.standing_worker"


def answers(result: ToolAgentResult) -> str:
    return "\n".join(result.errors)


@pytest.fixture
async def patient(redis_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A standby imports its client for Redis when the loop stands still, which takes seconds on a busy machine.

    Where the lease lapses before that, the run is another worker's, and no longer marked as stalled.
    """
    async with open_fleet(redis_url, tmp_path / "home", lease_seconds=4, shutdown_seconds=1) as fleet:
        yield fleet


@pytest.mark.long
async def test_a_loop_that_stands_still_for_longer_than_its_lease_keeps_its_runs(
    patient: Fleet, tmp_path: Path
) -> None:
    await asyncio.gather(*(patient.start(name, program=STANDING) for name in ("1", "2")))
    model = script(tmp_path, [call("hold", seconds=6)], [say("done")])
    result = await patient.run(model=model, tools=["hold"])
    assert (result.termination_reason, result.attempts, answers(result)) == ("completed", 1, "")


@pytest.mark.long
async def test_a_loop_that_stands_still_for_good_takes_its_worker_down_and_not_the_next(
    fleet: Fleet, tmp_path: Path
) -> None:
    worker = await fleet.start("1", program=STANDING)
    beside = await fleet.hand_over(model=script(tmp_path, {"blocks": [say("said")], "delay": 3}))
    await fleet.until_event(beside, "run_started")
    calls = [call("bash", command="true"), call("hold", seconds=60)]  # the first one has the turn kept
    id = await fleet.hand_over(model=script(tmp_path, calls, [say("done")]), tools=["bash", "hold"])
    assert await until(worker.poll) == -signal.SIGABRT
    second = await fleet.start("2", program=STANDING)
    results = [await fleet.result(each) for each in (id, beside)]
    assert [(each.termination_reason, each.attempts) for each in results] == [("completed", 2)] * 2
    assert "hold: outcome unknown: the worker's event loop was blocked while this call" in answers(results[0])
    assert answers(results[1]) == ""
    assert second.poll() is None
    log = (fleet.settings.home / "worker-1.log").read_text()
    assert "the event loop was blocked for" in log
    assert "standing_worker.py" in log  # where it stood


@pytest.mark.costly
async def test_a_standstill_before_its_turn_is_kept_takes_two_workers_down_and_no_third(
    patient: Fleet, tmp_path: Path
) -> None:
    await asyncio.gather(*(patient.start(name, program=STANDING) for name in ("1", "2", "3")))
    result = await patient.run(model=script(tmp_path, [call("hold", seconds=60)], [say("done")]), tools=["hold"])
    assert result.termination_reason == "completed"
    assert "outcome unknown: the worker's event loop was blocked" in answers(result)
    assert any(worker.poll() is None for worker in patient.workers.values())


@pytest.mark.costly
async def test_a_run_that_stops_its_workers_ends_alone_and_no_other_run_loses_anything(
    patient: Fleet, tmp_path: Path
) -> None:
    await asyncio.gather(*(patient.start(name, program=STANDING) for name in ("1", "2", "3")))
    turns = [[call("bash", command="true"), call("hold", seconds=60)] for _ in range(5)]
    ids = [
        await patient.hand_over(model=script(tmp_path, {"blocks": [say("said")], "delay": 14}), tools=[])
        for _ in range(4)
    ]
    hostile = await patient.hand_over(model=script(tmp_path, *turns, [say("done")]), tools=["bash", "hold"])
    ended = await patient.result(hostile, 180)
    assert (ended.termination_reason, ended.attempts) == ("worker_lost", 3)
    assert ended.errors[0] == (
        "the worker's event loop was blocked 3 times during this run, the last time in the call of bash and hold; "
        "it is given up"
    )
    for id in ids:
        result = await patient.result(id, 180)
        assert (result.termination_reason, result.summary, result.errors) == ("completed", "said", [])
    assert sum(worker.poll() is None for worker in patient.workers.values()) >= 1


@pytest.mark.costly
async def test_a_run_whose_own_process_cannot_start_ends_and_names_where_the_reason_is(
    redis_url: str, tmp_path: Path
) -> None:
    async with open_fleet(redis_url, tmp_path / "home", claim_seconds=1) as fleet:
        id = await fleet.hand_over(model=script(tmp_path, [say("done")]), tools=[])
        await fleet.service.store.redis.hset(record_key(id), "stalls", 2)
        await fleet.start("1", "--unfit", program=STANDING)
        result = await fleet.result(id, 120)
        assert result.termination_reason == "worker_lost"
        assert "3 processes of its own ended before they claimed it" in result.summary
        log, ended = (
            fleet.settings.home / "worker-1.log",
            f"the process alone {id} ended without an answer, with exit code 1",
        )
        await until(lambda: ended in log.read_text())


@pytest.mark.costly
async def test_a_run_whose_own_process_never_begins_ends_and_its_worker_goes_on(redis_url: str, tmp_path: Path) -> None:
    """The process holds its interpreter, so that nothing in it can end it."""
    async with open_fleet(redis_url, tmp_path / "home", claim_seconds=1, concurrency=1) as fleet:
        id = await fleet.hand_over(model=script(tmp_path, [say("done")]), tools=[])
        await fleet.service.store.redis.hset(record_key(id), "stalls", 2)
        worker = await fleet.start("1", "--endless", program=STANDING)
        log = fleet.settings.home / "worker-1.log"
        await until(lambda: "goes on in a process of its own" in log.read_text())
        beside = await fleet.run(model=script(tmp_path, [say("said")]), tools=[])
        assert (beside.termination_reason, beside.attempts) == ("completed", 1)
        result = await fleet.result(id, 120)
        assert result.termination_reason == "worker_lost"
        assert "3 processes of its own ended before they claimed it" in result.summary
        await until(lambda: log.read_text().count("did not claim its run within 3 s: it is ended") == MOST_STARTS)
        assert "_hold" in log.read_text(), "where it stood"
        await until(lambda: not alone(fleet))
        fleet.signal("1", signal.SIGTERM)
        await until(lambda: worker.poll() == 0)


@pytest.mark.costly
async def test_a_run_whose_own_process_finds_no_primary_waits_for_one(
    redis_process: RedisProcess, tmp_path: Path
) -> None:
    async with open_fleet(redis_process.url, tmp_path / "home", claim_seconds=5) as fleet:
        id = await fleet.hand_over(model=script(tmp_path, [say("done")]), tools=[])
        await fleet.service.store.redis.hset(record_key(id), "stalls", 2)
        await fleet.start("1", program=STANDING)
        log = fleet.settings.home / "worker-1.log"
        await until(lambda: "goes on in a process of its own" in log.read_text())
        redis_process.client.replicaof("127.0.0.1", 1)  # as a primary that Sentinel has demoted
        await until(lambda: "this process does not show that it is there" in log.read_text())
        redis_process.client.replicaof("NO", "ONE")
        result = await fleet.result(id, 120)
        assert (result.termination_reason, result.attempts) == ("completed", 1)
        assert log.read_text().count("goes on in a process of its own") == 1


@pytest.mark.costly
async def test_a_process_of_one_run_that_stays_after_it_is_ended(patient: Fleet, tmp_path: Path) -> None:
    id = await patient.hand_over(model=script(tmp_path, [call("linger")], [say("done")]), tools=["linger"])
    await patient.service.store.redis.hset(record_key(id), "stalls", 2)
    await patient.start("1", program=STANDING)
    result = await patient.result(id, 120)
    assert (result.termination_reason, result.attempts) == ("completed", 1)
    log = patient.settings.home / "worker-1.log"
    await until(lambda: "did not end after its run within 5 s: it is ended" in log.read_text())
    await until(lambda: not alone(patient))


@pytest.mark.costly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_process_of_one_run_hands_it_over_when_its_worker_ends(
    patient: Fleet, tmp_path: Path, number: signal.Signals
) -> None:
    model = script(tmp_path, [call("bash", command="touch begun; exec sleep 1000")], [say("done")])
    id = await patient.hand_over(model=model, tools=["bash"])
    await patient.service.store.redis.hset(record_key(id), "stalls", 2)
    worker = await patient.start("1", program=STANDING)
    await until((patient.settings.workspaces / id / "files/begun").exists, 60)
    await until(lambda: alone(patient))
    patient.signal("1", number)
    await until(lambda: worker.poll() is not None, 60)
    await until(lambda: not alone(patient), 60)
    await patient.start("2", program=STANDING)
    result = await patient.result(id, 120)
    assert (result.termination_reason, result.attempts) == ("completed", 2)
    resumed = await patient.until_event(id, "run_resumed")
    assert "was handed over" in getattr(resumed.event, "reason", "")


def alone(fleet: Fleet) -> list[int]:
    """The processes of single runs of this fleet's workers."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            of_fleet = os.fsencode(fleet.settings.home) in path.with_name("environ").read_bytes()
            if of_fleet and b"spawn_main" in path.read_bytes():
                found.append(int(path.parent.name))
    return found


async def test_a_call_that_brings_its_worker_down_is_tried_twice_and_then_answered(
    fleet: Fleet, tmp_path: Path
) -> None:
    id = await fleet.hand_over(model=script(tmp_path, [call("fall")], [say("done")]), tools=["fall"])
    for name in ("1", "2"):
        worker = await fleet.start(name, program=STANDING, wait=False)
        assert await until(worker.poll) == -signal.SIGKILL
    await fleet.start("3", program=STANDING)
    result = await fleet.result(id)
    assert (result.termination_reason, result.attempts) == ("completed", 3)
    assert "outcome unknown: two workers were lost while this call was under way" in answers(result)


@pytest.mark.long
async def test_a_standby_that_is_killed_is_replaced_and_ends_with_its_worker(patient: Fleet, tmp_path: Path) -> None:
    worker = await patient.start("1", program=STANDING)
    first = await until(lambda: standby_of(worker.pid))
    os.kill(first, signal.SIGKILL)
    second = await until(lambda: (standby_of(worker.pid) or first) != first and standby_of(worker.pid))
    await patient.start("2", program=STANDING)
    model = script(tmp_path, [call("hold", seconds=6)], [say("done")])
    assert (await patient.run(model=model, tools=["hold"])).attempts == 1
    await patient.kill("1")
    await until(lambda: not Path(f"/proc/{second}").exists() or standby_of(worker.pid) is None)


@pytest.mark.parametrize("replaced", [False, True])
async def test_the_standby_of_a_killed_worker_ends_its_leases(
    redis_url: str, tmp_path: Path, *, replaced: bool
) -> None:
    """No other worker is there, whose janitor could do it. One that was started anew knows what is held."""
    async with open_fleet(redis_url, tmp_path / "home", lease_seconds=600) as fleet:
        worker = await fleet.start("1", program=STANDING)
        id = await fleet.hand_over(model=script(tmp_path, [call("bash", command="sleep 1000")]))
        await fleet.until_event(id, "step_started")
        assert await lease_left(fleet, id) > 300
        if replaced:
            first = await until(lambda: standby_of(worker.pid))
            os.kill(first, signal.SIGKILL)
            second = await until(lambda: (standby_of(worker.pid) or first) != first and standby_of(worker.pid))
            await until(lambda: watches(second))
        await fleet.kill("1")
        await until(lambda: has_lapsed(fleet, id))
        assert (await fleet.service.get(id)).status == "running"  # until a janitor comes, which counts a lost worker


async def test_a_standby_that_loses_its_worker_out_of_sight_leaves_the_leases_alone(
    redis_url: str, tmp_path: Path
) -> None:
    """Its pipe is closed, and the worker lives."""
    async with open_fleet(redis_url, tmp_path / "home", lease_seconds=600) as fleet:
        id = await fleet.hand_over()
        claim = await fleet.service.store.claim(id, "token", "worker-1", 600)
        assert claim is not None
        times = {"lease": 600, "bound": 900, "tick": 0.1}
        scripts = {"renew": RENEW.source, "stalled": STALLED.source, "leases": LEASES}
        settings = json.dumps({"url": redis_url, "pid": os.getpid(), **times, **scripts})
        command = [sys.executable, "-I", program.__file__]
        standby = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        await standby.communicate(f"{settings}\n+ {id} {record_key(id)} {claim.fence}\n".encode())
        assert standby.returncode == 0
        assert await lease_left(fleet, id) > 300


async def lease_left(fleet: Fleet, id: str) -> float:
    """Seconds by the server's clock."""
    seconds, micros = await fleet.service.store.redis.time()
    return await fleet.service.store.redis.zscore(LEASES, id) / 1000 - seconds - micros / 1e6


def watches(standby: int) -> bool:
    """Whether it has opened its worker."""
    for fd in Path(f"/proc/{standby}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            if "pidfd" in str(fd.readlink()):
                return True
    return False


async def has_lapsed(fleet: Fleet, id: str) -> bool:
    return await lease_left(fleet, id) <= 0


def standby_of(worker: int) -> int | None:
    """The process beside the worker, where it is alive."""
    for pid in Path(f"/proc/{worker}/task/").glob("*/children") if Path(f"/proc/{worker}").exists() else ():
        for child in pid.read_text().split():
            try:
                if b"standby/program.py" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
            except OSError:
                continue
    return None
