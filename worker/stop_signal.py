"""The signal that stops a run from outside: a cancel request, or the loss of its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum


class StopReason(Enum):
    """Why a run is stopped from outside."""

    CANCELLED = "cancelled"
    WRAPPED_UP = "wrapped_up"
    """Before the first turn: later the loop ends itself, and reports."""
    FENCED = "fenced"


class StopSignal:
    """Stops one run; the first reason is kept, except that losing the lease overrides it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason: StopReason | None = None
        self.elapsed: Callable[[], float] | None = None
        """Set by the run: returns the seconds of its time that are used, which are stored with its lease."""
        self.message: Callable[[], None] = lambda: None
        """Set by the run: called when a message was sent to it."""

    @property
    def used(self) -> dict[str, int]:
        """Returns the time used, as an argument of the scripts that renew or release the lease; empty if not known."""
        return {"elapsed_ms": round(self.elapsed() * 1000)} if self.elapsed else {}

    def set(self, reason: StopReason) -> None:
        if self.reason is None or reason is StopReason.FENCED:
            self.reason = reason
        self._event.set()

    async def wait(self) -> StopReason:
        await self._event.wait()
        assert self.reason is not None
        return self.reason
