"""Money over random trees of delegations: no limit and no cap is exceeded, and nothing stays reserved."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from deputize.shared.connection import Pipe, connect
from deputize.shared.runs.store import WRITING, RunStore
from tests.processes.redis_server import RedisProcess
from tests.runs.money_trees import described, live

SECONDS = 1.5


@pytest.fixture
async def scripts(redis_url: str) -> AsyncIterator[tuple[RunStore, Pipe]]:
    async with connect(redis_url) as redis, connect(redis_url, timeout=None) as writing, Pipe(writing, WRITING) as pipe:
        yield RunStore(redis, 60), pipe
        await redis.flushdb()  # trees end without the write of a result


async def test_no_tree_exceeds_a_limit_or_a_cap_and_nothing_stays_reserved(scripts: tuple[RunStore, Pipe]) -> None:
    first, begun = time.time_ns(), time.monotonic()
    for seed in range(first, first + 1000):
        world = await live(*scripts, seed)
        assert world.overshoots() == [], (seed, described(world))
        assert await world.leftovers() == [], (seed, described(world))
        await scripts[0].redis.flushdb()
        if time.monotonic() - begun > SECONDS:
            return


async def test_redis_may_be_killed_at_any_moment(redis_process: RedisProcess) -> None:
    """What it has answered is in its file, and what it has not answered is sent again."""

    def restart() -> None:
        redis_process.kill()
        redis_process.start()

    first, begun, restarts, url = time.time_ns(), time.monotonic(), 0, redis_process.url
    async with connect(url) as redis, connect(url, timeout=None) as writing, Pipe(writing, WRITING) as pipe:
        for seed in range(first, first + 1000):
            world = await live(RunStore(redis, 60), pipe, seed, restart)
            assert world.overshoots() == [], (seed, described(world))
            assert await world.leftovers() == [], (seed, described(world))
            await redis.flushdb()
            restarts += world.restarts
            if restarts and time.monotonic() - begun > SECONDS:
                return
