"""The reconnect policy of the client's event streams."""

from __future__ import annotations

import time

from deputize.shared.background import Backoff
from deputize.shared.errors import OutOfSpace, Unavailable

FULL_SECONDS = 5.0
"""Seconds for which a full disk is retried: it is seldom freed during a wait."""


class ReconnectPolicy:
    """Exponential back-off between reconnects, and the number of seconds after which to give up."""

    FIRST, LONGEST = 0.1, 5.0

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._backoff = Backoff(self.FIRST, self.LONGEST)
        self.reset()

    def reset(self) -> None:
        """Resets the back-off, after data arrived."""
        self._backoff.reset()
        self._since: float | None = None

    def check(self, error: Unavailable) -> None:
        """Raises the error if the next attempt would be after the time to give up."""
        self._since = self._since or time.monotonic()
        seconds = min(self._seconds, FULL_SECONDS) if isinstance(error, OutOfSpace) else self._seconds
        if time.monotonic() + self._backoff.delay - self._since > seconds:
            raise error from None

    async def wait(self) -> None:
        await self._backoff.wait()
