"""A record kept in a real Redis and in fakeredis (P-23)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeServer

from deputize.shared.bus import Bus
from deputize.shared.connection import Pipe, connect
from deputize.shared.runs.store import WRITING, RunStore


@pytest.fixture(params=["fake", "real"])
async def clients(request: pytest.FixtureRequest) -> AsyncIterator[list[Any]]:
    """Three connections to one Redis: for reading, for writing and for listening."""
    if request.param == "fake":
        server = FakeServer()
        made: list[Any] = [FakeAsyncRedis(server=server, decode_responses=True) for _ in range(3)]
    else:
        made = [connect(request.getfixturevalue("redis_url")) for _ in range(3)]
    yield made
    for client in made:
        await client.aclose()


@pytest.fixture
def store(clients: list[Any]) -> RunStore:
    return RunStore(clients[0], retention_seconds=60)


@pytest.fixture
async def pipe(clients: list[Any]) -> AsyncIterator[Pipe]:
    async with Pipe(clients[1], WRITING) as pipe:
        yield pipe


@pytest.fixture
async def bus(clients: list[Any]) -> AsyncIterator[Bus]:
    async with Bus(clients[2]) as bus:
        yield bus
