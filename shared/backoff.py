"""Back-off: how long to wait before the next try."""

from __future__ import annotations

import asyncio


class Backoff:
    """Delays in seconds, each twice the one before, up to the longest."""

    def __init__(self, first: float = 0.05, longest: float = 1.0) -> None:
        self._first = first
        self._longest = longest
        self.delay = first
        """Before the next try."""

    def reset(self) -> None:
        """Something worked: the next failure is a new one."""
        self.delay = self._first

    def next(self) -> float:
        """The delay before this try; the one before the next try is longer."""
        delay = self.delay
        self.delay = min(2 * delay, self._longest)
        return delay

    async def wait(self) -> None:
        await asyncio.sleep(self.next())
