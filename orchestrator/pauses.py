"""How long a client waits before it connects again."""

from __future__ import annotations

import time

from shared.background import Backoff
from shared.errors import OutOfSpace, Unavailable

FULL_SECONDS = 5.0
"""A full disk is seldom emptied while somebody waits."""


class Pauses:
    """How long to wait before the next try, and when to stop trying."""

    FIRST, LONGEST = 0.1, 5.0

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._backoff = Backoff(self.FIRST, self.LONGEST)
        self.over()

    def over(self) -> None:
        """Something came: the next trouble is a new one."""
        self._backoff.reset()
        self._since: float | None = None

    def check(self, error: Unavailable) -> None:
        self._since = self._since or time.monotonic()
        patience = min(self._patience, FULL_SECONDS) if isinstance(error, OutOfSpace) else self._patience
        if time.monotonic() + self._backoff.delay - self._since > patience:
            raise error from None

    async def next(self) -> None:
        await self._backoff.wait()
