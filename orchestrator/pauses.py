"""Back-off between a client's reconnects."""

from __future__ import annotations

import time

from shared.background import Backoff
from shared.errors import OutOfSpace, Unavailable

FULL_SECONDS = 5.0
"""Seconds for which a full disk is retried: it is seldom freed during a wait."""


class Pauses:
    """Delays between reconnects, and the time after which to give up."""

    FIRST, LONGEST = 0.1, 5.0

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._backoff = Backoff(self.FIRST, self.LONGEST)
        self.over()

    def over(self) -> None:
        """Resets the delays, after data arrived."""
        self._backoff.reset()
        self._since: float | None = None

    def check(self, error: Unavailable) -> None:
        self._since = self._since or time.monotonic()
        patience = min(self._patience, FULL_SECONDS) if isinstance(error, OutOfSpace) else self._patience
        if time.monotonic() + self._backoff.delay - self._since > patience:
            raise error from None

    async def next(self) -> None:
        await self._backoff.wait()
