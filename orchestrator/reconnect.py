"""Event streams that are followed: reconnects, and delegations that are paused meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import NoReturn

from ..shared.background import Backoff
from ..shared.delegation import Delegation
from ..shared.errors import Conflict, OutOfSpace, Unavailable
from ..shared.events import Envelope

FIRST_SILENCE, SILENCE = 1.0, 10.0
"""Seconds without an event after which it is asked whether the delegation is paused; one that runs has heartbeats."""
FULL_SECONDS = 1.0
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


async def follow_unless_paused(
    events: AsyncGenerator[Envelope],
    get: Callable[[str], Awaitable[Delegation]],
    id: str,
    on_pause: Callable[[str], Awaitable[object]],
) -> AsyncGenerator[Envelope]:
    """Yields a delegation's events; where they stay away because it is paused, calls ``on_pause``, which may raise."""
    silence = FIRST_SILENCE
    async with aclosing(events):
        coming = asyncio.ensure_future(anext(events, None))
        try:
            while True:
                await asyncio.wait({coming}, timeout=silence)
                if not coming.done():
                    silence = SILENCE
                    with suppress(Unavailable):  # the stream's own policy decides when to give up
                        if (await get(id)).paused:
                            await on_pause(id)
                elif (envelope := coming.result()) is None:
                    return
                else:
                    yield envelope
                    coming = asyncio.ensure_future(anext(events, None))
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


async def refuse_paused(id: str) -> NoReturn:
    """Raises Conflict: nothing works on the delegation."""
    raise Conflict(paused_note(id))


def paused_note(id: str) -> str:
    return f"{id} is paused, because the stack that worked on it ended; `deputize resume {id}` goes on with it"
