"""How long the event loop of a test is blocked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

_TICK = 0.005


@dataclass
class Lag:
    """``longest`` is the longest standstill so far, in seconds."""

    longest: float = 0.0
    ticks: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def lag_probe() -> AsyncIterator[Lag]:
    """Measures as long as the block runs. What other programs on a busy machine take does not count."""
    lag = Lag()
    loop = asyncio.get_running_loop()

    def tick(due: float, kept_waiting: float) -> None:
        nonlocal timer
        lag.longest = max(lag.longest, loop.time() - due - (_kept_waiting() - kept_waiting))
        lag.ticks.set()
        timer = loop.call_later(_TICK, tick, loop.time() + _TICK, _kept_waiting())

    timer = loop.call_later(_TICK, tick, loop.time() + _TICK, _kept_waiting())
    try:
        yield lag
        lag.ticks.clear()
        await lag.ticks.wait()  # what blocked it at the end of the block counts, too
    finally:
        timer.cancel()


def _kept_waiting() -> float:
    """Seconds in which this thread could have run and no processor was free."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
