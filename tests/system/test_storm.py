"""A storm over a fleet with a replica: every delegation ends well, no effect is doubled, nothing is left."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import redis.asyncio as redis

from tests.processes.link import Link
from tests.processes.redis_server import RedisProcess
from tests.system.storm.faults import LANES, Antagonist
from tests.system.storm.stage import open_stage
from tests.system.storm.waves import Wave
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(420)]


@pytest.mark.thorough
@pytest.mark.requirement("P-16", "P-14")
async def test_delegations_survive_a_storm(tmp_path: Path) -> None:
    number, seed = 60, random.randrange(1 << 32)
    antagonists = [Antagonist(lane, seed, print) for lane in LANES]
    async with open_stage(tmp_path, 3) as stage:
        wave = Wave(stage, f"{seed}-0", number, 30, is_hostile=False)
        await wave.pass_over(antagonists)
    assert wave.wrong == []
    assert len(wave.attempts) == number
    assert all(each.done for each in antagonists)


async def test_what_is_sent_while_a_link_is_silent_arrives_later_and_a_cut_one_is_closed(
    redis_process: RedisProcess, tmp_path: Path
) -> None:
    server = Path(redis_process.url.removeprefix("unix://"))
    async with (
        Link(tmp_path / "l", server).passing() as link,
        redis.Redis.from_url(link.url, socket_timeout=0.2, retry=None) as client,
    ):
        assert await client.ping()
        link.cut(silently=True)
        with pytest.raises(redis.TimeoutError):
            await client.incr("deputize:test")
        assert redis_process.client.get("deputize:test") is None
        link.restore()
        await until(lambda: redis_process.client.get("deputize:test") == b"1")
        link.cut(silently=False)
        with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
            await client.ping()
