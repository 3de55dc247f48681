"""How long the event loop of a test stands still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_TICK = 0.005


@dataclass
class Lag:
    """``longest`` is the longest standstill so far, in seconds."""

    longest: float = 0.0
    ticks: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def lag_probe() -> AsyncIterator[Lag]:
    """Measures as long as the block runs. A busy machine adds to it what it takes from this process."""
    lag = Lag()
    loop = asyncio.get_running_loop()

    def tick(due: float) -> None:
        nonlocal timer
        lag.longest = max(lag.longest, loop.time() - due)
        lag.ticks.set()
        timer = loop.call_later(_TICK, tick, loop.time() + _TICK)

    timer = loop.call_later(_TICK, tick, loop.time() + _TICK)
    try:
        yield lag
        lag.ticks.clear()
        await lag.ticks.wait()  # what stood still at the end of the block counts, too
    finally:
        timer.cancel()
