"""The pipe to Redis: what shares a round trip, and what does not wait for one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.connection import PACE_SECONDS, Pipe, connect
from shared.runs.keys import LEASES
from shared.runs.store import RENEW

TIMES = 20


@pytest.fixture
async def pipe(redis_url: str) -> AsyncIterator[Pipe]:
    """A pipe that is connected and has loaded its scripts."""
    async with connect(redis_url, timeout=None) as writing, Pipe(writing, [RENEW]) as pipe:
        await ask(pipe)
        yield pipe


def ask(pipe: Pipe) -> asyncio.Future[list[str]]:
    return pipe.script(RENEW, [LEASES], {"lease_ms": 1000, "runs": []})


async def reads(redis: Any) -> int:
    return (await redis.info("stats"))["total_reads_processed"]


async def test_what_is_asked_for_soon_after_a_round_trip_goes_out_together(pipe: Pipe, redis_url: str) -> None:
    async with connect(redis_url) as redis:
        before = await reads(redis)
        asked: list[asyncio.Future[list[str]]] = []
        for _ in range(TIMES):
            asked.append(ask(pipe))
            await redis.ping()
        assert await asyncio.gather(*asked) == [[]] * TIMES
        assert await reads(redis) - before - TIMES < TIMES / 2


async def test_who_waits_for_an_answer_is_not_kept_waiting_for_more(pipe: Pipe) -> None:
    async def took() -> float:
        begun = time.perf_counter()
        for _ in range(TIMES):
            asked = ask(pipe)
            pipe.flush()
            await asked
        return time.perf_counter() - begun

    assert min([await took() for _ in range(5)]) < TIMES * PACE_SECONDS / 2
