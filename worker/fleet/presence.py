"""Presence: a killed worker is detected within seconds, long before its leases lapse.

Every worker process holds a subscription of its own; the kernel ends it with the process. A janitor that sees no
subscriber for ABSENT_SECONDS lets the leases of that process lapse. A frozen worker keeps its subscription, and one
whose connection is cut may be alive: leases and fences guarantee correctness, presence only speeds up detection.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from ...shared.bus import Bus
from ...shared.connection import REDIS_ERRORS
from ...shared.runs.keys import PRESENCE, presence_channel
from ...shared.runs.store import RunStore

ABSENT_SECONDS = 2.0
"""A subscription restored within this time, for example after a restart of Redis, does not count as absent."""


class Presence:
    """One worker process's presence, and its view of the others'. ``owner`` is unique to the process."""

    def __init__(self, store: RunStore, bus: Bus, name: str) -> None:
        self._store = store
        self._bus = bus
        self.owner = f"{name}#{secrets.token_hex(4)}"
        self._absent: dict[str, float] = {}

    @asynccontextmanager
    async def shown(self) -> AsyncGenerator[None]:
        """Shows the process as present while the block runs."""
        async with self._bus.listen(presence_channel(self.owner)):
            await self._store.redis.zadd(PRESENCE, {self.owner: time.time()})
            yield
        with suppress(*REDIS_ERRORS):
            await self._store.redis.zrem(PRESENCE, self.owner)

    async def lapse_absent(self) -> list[str]:
        """Lets the leases of absent processes lapse; returns those processes."""
        owners: list[str] = await self._store.redis.zrange(PRESENCE, 0, -1)
        counts = await self._store.redis.pubsub_numsub(*map(presence_channel, owners)) if owners else []
        now = time.monotonic()
        since = {
            owner: self._absent.get(owner, now) for owner, (_, count) in zip(owners, counts, strict=True) if not count
        }
        self._absent = since
        gone = [owner for owner, moment in since.items() if now - moment >= ABSENT_SECONDS]
        for owner in gone:
            await self._store.lapse(owner)
            await self._store.redis.zrem(PRESENCE, owner)
        return gone
