"""The pool of connections to Redis."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio import ConnectionPool

IDLE_SECONDS = 60.0
"""After how long without use a connection is closed, so that a peak does not leave hundreds of them open."""


class Pool(ConnectionPool):
    """A pool that closes connections without use: each release closes one that was not used for ``idle_seconds``."""

    idle_seconds = IDLE_SECONDS

    async def release(self, connection: Any) -> None:
        connection.released_at = now = asyncio.get_running_loop().time()
        await super().release(connection)
        idle: list[Any] = self._available_connections  # the last one is taken first
        if idle and now - idle[0].released_at > self.idle_seconds:
            await idle.pop(0).disconnect(nowait=True)
