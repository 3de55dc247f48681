"""Pools of connections to Redis that close those without use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import ConnectionPool

IDLE_SECONDS = 60.0
"""After how long without use a connection is closed, so that a peak does not leave hundreds of them open."""


class IdleTimeout:
    """Of a connection pool: a connection that is released closes one that was not used for ``idle_seconds``."""

    idle_seconds = IDLE_SECONDS
    _available_connections: list[Any]
    """The last one is taken first."""

    async def release(self, connection: Any) -> None:
        connection.released_at = now = asyncio.get_running_loop().time()
        release: Callable[[Any], Awaitable[None]] = super().release  # pyright: ignore
        await release(connection)
        idle = self._available_connections
        if idle and now - idle[0].released_at > self.idle_seconds:
            await idle.pop(0).disconnect(nowait=True)


class Pool(IdleTimeout, ConnectionPool):
    """Of connections to one address."""
