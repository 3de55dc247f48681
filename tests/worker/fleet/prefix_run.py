"""A run of a worker process that shares a prefix: a test decides when its reply begins, and sees whether it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from deputize.shared.delegation import Usage
from deputize.shared.events import Event
from deputize.worker.fleet.gate import PrefixWait, SharedPrefixes
from deputize.worker.models.base import Price
from deputize.worker.models.caching import Prefix

CACHED = Usage(cache_write_tokens=20_000)


@dataclass
class Runner:
    """One run of a process: its requests, and what it published."""

    prefixes: SharedPrefixes
    events: list[Event] = field(default_factory=list[Event])
    idle: int = 0
    """How often its slot is free and its clock stopped."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its request may be sent."""
    reply: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the test: its reply begins."""

    def __post_init__(self) -> None:
        self.wait = PrefixWait(self.prefixes, self.events.append, self._idle)

    @contextmanager
    def _idle(self) -> Generator[None]:
        self.idle += 1
        yield
        self.idle -= 1

    async def run(self, *shared: Prefix, usage: Usage = CACHED, price: Price | None = None) -> None:
        async with self.wait.request("endpoint", lambda: shared, price, hour=False):
            self.wait.sends()
            self.ready.set()
            await self.reply.wait()
            self.wait.works(usage)

    def start(self, *shared: Prefix, price: Price | None = None) -> asyncio.Task[None]:
        self.ready.clear()
        return asyncio.create_task(self.run(*shared, price=price))

    @property
    def waits(self) -> bool:
        return self.idle == 1 and not self.ready.is_set()
