"""Redis away, workers frozen, tickets doubled: what happens when."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deputize.shared.errors import Unavailable
from deputize.shared.queue import Ticket, create_app, send_tickets
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet, open_fleet
from tests.system.crashing import WORKER, Counting, check, effects
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

PACED = 12


@pytest.fixture
async def own_fleet(redis_process: RedisProcess, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A fleet whose Redis may be killed."""
    async with open_fleet(redis_process.url, tmp_path / "home", lease_seconds=2, shutdown_seconds=1) as fleet:
        yield fleet


def paced(folder: Path) -> str:
    """A dozen turns, a tenth of a second each: long enough for something to happen in the middle."""
    turns = [{"blocks": [call("bash", command=f"echo {n} >> log.txt")], "delay": 0.1} for n in range(PACED)]
    return script(folder, *turns, [say("done")])


async def numbers(fleet: Fleet, id: str) -> list[int | None]:
    return [envelope.seq for envelope in await fleet.service.events(id)]


@pytest.mark.requirement("P-14")
async def test_redis_away_for_a_moment_changes_nothing(
    own_fleet: Fleet, redis_process: RedisProcess, tmp_path: Path
) -> None:
    await own_fleet.start()
    id = await own_fleet.hand_over(model=paced(tmp_path))
    await own_fleet.until_event(id, "step_completed")
    redis_process.kill()
    redis_process.start()
    result = await until(lambda: finished(own_fleet, id), 60)
    assert (result.termination_reason, result.turn_count, result.attempts) == ("completed", PACED + 1, 1)
    seen = await numbers(own_fleet, id)
    assert seen == list(range(1, len(seen) + 1))


@pytest.mark.long
@pytest.mark.requirement("P-14")
async def test_redis_away_for_longer_than_the_lease_hands_the_run_to_the_next_worker(
    own_fleet: Fleet, redis_process: RedisProcess, tmp_path: Path
) -> None:
    await own_fleet.start()
    model = script(tmp_path, [call("bash", command="echo begun > a.txt; exec sleep 1000")], [say("done")])
    id = await own_fleet.hand_over(model=model)
    file = own_fleet.settings.workspaces / id / "files" / "a.txt"
    await until(file.exists, 20)
    redis_process.kill()
    log = own_fleet.settings.home / "worker-1.log"
    await until(lambda: "lost its lease" in log.read_text(), 60)
    with pytest.raises(Unavailable, match="try again"):
        await own_fleet.service.get(id)
    redis_process.start()
    result = await until(lambda: finished(own_fleet, id), 60)
    assert (result.termination_reason, result.attempts) == ("completed", 2)
    seen = await numbers(own_fleet, id)
    assert seen == list(range(1, len(seen) + 1))


async def finished(fleet: Fleet, id: str) -> object:
    try:
        return (await fleet.service.get(id)).result
    except Unavailable:
        return None


async def test_a_frozen_worker_that_wakes_up_writes_nothing(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.start("1")
    async with Counting.open() as counting:
        first = [call("bash", command="echo one >> log.txt")]
        held = {"blocks": [call("bash", command="echo two >> log.txt")], "delay": 1.0}
        id = await fleet.hand_over(model=script(tmp_path, first, held, [say("done")]))
        await fleet.until_event(id, "step_completed")
        fleet.signal("1", signal.SIGSTOP)
        await fleet.start("2")
        result = await fleet.result(id)
        assert (result.termination_reason, result.attempts) == ("completed", 2)
        before = await numbers(fleet, id)
        fleet.signal("1", signal.SIGCONT)
        log = fleet.settings.home / "worker-1.log"
        await until(lambda: "lost its lease" in log.read_text(), 60)
        assert await numbers(fleet, id) == before
        assert (await fleet.service.get(id)).result == result
        assert not counting.seen
    files = fleet.settings.workspaces / id / "files.2" / "log.txt"
    assert files.read_text().split() == ["one", "two"]


async def test_the_same_ticket_five_times_at_once_is_one_run(fleet: Fleet, tmp_path: Path) -> None:
    await asyncio.gather(fleet.start("1"), fleet.start("2"))
    id = await fleet.hand_over(model=paced(tmp_path))
    app = create_app(fleet.settings, str(fleet.settings.redis_url))
    await asyncio.to_thread(send_tickets, app, [Ticket(id)] * 5)
    app.close()
    result = await fleet.result(id)
    assert (result.termination_reason, result.attempts, result.turn_count) == ("completed", 1, PACED + 1)
    started = [e for e in await fleet.service.events(id) if e.event.type == "run_started"]
    assert len(started) == 1


async def test_a_worker_asked_to_stop_in_the_middle_of_many_effects_repeats_none(
    redis_url: str, tmp_path: Path
) -> None:
    async with (
        open_fleet(redis_url, tmp_path / "home", lease_seconds=2, shutdown_seconds=0) as fleet,
        Counting.open() as counting,
    ):
        await fleet.start("1", program=WORKER)
        id = await fleet.hand_over(model=effects(tmp_path, counting, "soft"), tools=["*"])
        await fleet.until_event(id, "step_completed")
        fleet.signal("1", signal.SIGTERM)
        await fleet.start("2", program=WORKER)
        assert await check(fleet, counting, await fleet.result(id), "soft") == []
