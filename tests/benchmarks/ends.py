"""Hears runs start and end, reading no more of an event than its head: measuring must not cost what is measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from deputize.shared.connection import connect
from deputize.shared.runs.store import EVENTS

ID = slice(len('{"delegationId":"'), len('{"delegationId":"') + len("dlg_") + 26)
HEAD = 200


class Ends:
    """When each run was heard to start and to end (``time.perf_counter``), and how many went on at once."""

    def __init__(self) -> None:
        self.started: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.peak = 0
        self._news = asyncio.Event()

    def reset(self) -> None:
        self.started.clear()
        self.ended.clear()
        self.peak = 0

    def hear(self, message: str) -> None:
        head = message[:HEAD]
        if '"type":"run_started"' in head:
            self.started[head[ID]] = time.perf_counter()
            self.peak = max(self.peak, len(self.started) - len(self.ended))
        elif '"type":"run_finished"' in head:
            self.ended[head[ID]] = time.perf_counter()
            self._news.set()

    async def wait_for(self, count: int, seconds: float = 60) -> None:
        """Returns when so many runs have ended since ``reset``."""
        async with asyncio.timeout(seconds):
            while len(self.ended) < count:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def hear_ends(redis_url: str) -> AsyncGenerator[Ends]:
    """Listens on a connection of its own, with room for whatever a run of a benchmark publishes."""
    ends = Ends()
    async with connect(redis_url) as redis, redis.pubsub() as subscription:
        await subscription.subscribe(EVENTS)

        async def hear() -> None:
            async for message in subscription.listen():
                if message["type"] == "message":
                    ends.hear(message["data"])

        hearing = asyncio.create_task(hear())
        try:
            yield ends
        finally:
            hearing.cancel()
            await asyncio.wait({hearing})
