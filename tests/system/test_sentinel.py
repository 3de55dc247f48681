"""A fleet over Sentinel: the primary is killed in the middle of runs, and work goes on at the one that took over."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from deputize.shared.errors import Unavailable
from tests.processes.sentinels import Watched
from tests.runs.fleet import open_fleet
from tests.system.crashing import WORKER, Counting, check, effects
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


@pytest.mark.costly
async def test_a_killed_primary_is_replaced_and_no_effect_is_repeated(watched: Watched, tmp_path: Path) -> None:
    own = {"lease_seconds": 2, "shutdown_seconds": 1, "local": False, "redis": {"replicas": 1}}
    async with open_fleet(watched.url, tmp_path / "home", **own) as fleet, Counting.open() as counting:
        await fleet.start("1", program=WORKER)
        ids = [
            await fleet.hand_over(model=effects(tmp_path, counting, f"run{number}", delay=0.2), tools=["*"])
            for number in range(4)
        ]
        await fleet.until_event(ids[0], "step_completed")
        await asyncio.to_thread(watched.kill_primary)
        begun = time.monotonic()

        async def accepts() -> bool:
            try:
                return bool(await fleet.hand_over(model="scripted", idempotency_key="after"))
            except Unavailable:
                return False

        await until(accepts, 30)
        print(f"accepts again {time.monotonic() - begun:.2f} s after the promotion")
        for number, id in enumerate(ids):

            async def finished(id: str = id) -> object:
                try:
                    return (await fleet.service.get(id)).result
                except Unavailable:
                    return None

            assert await check(fleet, counting, await until(finished, 60), f"run{number}") == []
