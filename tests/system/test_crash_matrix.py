"""Kill -9 at every event: the next worker finishes, and every effect has happened once or is reported in doubt."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.runs.fleet import Fleet, open_fleet
from tests.system.crashing import WORKER, Counting, check, effects, hand_to

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(600)]

LANES = 2
DEADLINES = {"lease_seconds": 1, "claim_seconds": 3}
"""Also for tickets: a worker may be killed while it requeues the run of the other lane, before its ticket is sent."""


async def crash_at(fleet: Fleet, counting: Counting, folder: Path, lane: int, seq: int) -> list[str]:
    """Kills the worker as soon as the event is seen, and returns what is wrong with the result."""
    name = f"{lane}-{seq}"
    await fleet.start(name, "--queues", f"victim-{lane}", program=WORKER)
    id = await hand_to(fleet, f"victim-{lane}", model=effects(folder, counting, name), tools=["*"])
    async with aclosing(fleet.service.follow(id)) as events:
        async for envelope in events:
            if envelope.seq == seq:
                break
    await fleet.kill(name)
    result = await fleet.result(id, 30)
    return [f"killed at event {seq}: {wrong}" for wrong in await check(fleet, counting, result, name)]


@pytest.mark.requirement("P-16")
@pytest.mark.costly
async def test_a_worker_killed_at_any_event_loses_and_repeats_nothing(
    redis_url: str, tmp_path: Path, is_thorough: bool
) -> None:
    async with open_fleet(redis_url, tmp_path / "home", **DEADLINES) as fleet, Counting.open() as counting:
        await fleet.start("survivor", program=WORKER)
        id = await fleet.hand_over(model=effects(tmp_path, counting, "whole"), tools=["*"])
        whole = await fleet.result(id)
        assert await check(fleet, counting, whole, "whole") == []
        moments = range(2, len(await fleet.service.events(id)))
        tried = moments if is_thorough else random.sample(moments, len(moments) // 3)

        async def lane(number: int) -> list[str]:
            return [
                wrong
                for seq in tried[number::LANES]
                for wrong in await crash_at(fleet, counting, tmp_path, number, seq)
            ]

        wrong = await asyncio.gather(*(lane(number) for number in range(LANES)))
        assert [line for lines in wrong for line in lines] == []
