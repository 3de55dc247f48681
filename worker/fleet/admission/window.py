"""How many requests a process sends at a time to an endpoint of which it knows no limit.

So that few requests are refused before a limit is known, a process begins with two requests at a time, and adds one
for each that is not refused.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from .line import PacedCall

FIRST_SIZE = 2
"""How many requests a process sends at a time to an endpoint of which it knows nothing."""
LARGEST_SIZE = 4096
ACCEPTED_SECONDS = 0.2
"""A request that is not refused within this time counts as accepted: a refusal is faster than a reply."""
LOOKS = 8
"""The time passes in so many parts: where the event loop is late, refusals that have arrived are read in between."""
SPACED_SIZE = 64
"""Up to this size what a window lets through is spaced, so that the first refusal stops the rest."""
IDLE_SECONDS = 60.0
"""After so long without a request nothing is known of an endpoint any more."""


@dataclass(slots=True, eq=False)
class Window:
    """The requests that are neither refused nor accepted yet, and how many of them there may be.

    One timer looks at all of them, so that a request costs none of its own.
    """

    opened: Callable[[], None]
    """Called when it has room again."""
    size: int = FIRST_SIZE
    _sent: dict[PacedCall, int] = field(default_factory=dict[PacedCall, int])
    """At which look each of the requests is accepted."""
    _looks: int = 0
    _looking: asyncio.TimerHandle | None = None
    _opening: asyncio.TimerHandle | None = None
    _used: float = 0.0
    _space: float = 0.0
    """The earliest time of the next request."""

    @property
    def count(self) -> int:
        return len(self._sent)

    def delay(self, now: float) -> float:
        """Returns the seconds until the next request may be sent; infinite where another one must leave before."""
        if not self._sent and now - self._used > IDLE_SECONDS:
            self.size = FIRST_SIZE
        return max(self._space - now, 0.0) if len(self._sent) < self.size else math.inf

    def enter(self, call: PacedCall, now: float) -> None:
        """Notes that the request is sent."""
        self._used = call.sent = now
        if self.size < SPACED_SIZE:
            self._space = now + ACCEPTED_SECONDS / (2 * self.size)
        self._sent[call] = self._looks + LOOKS
        if not self._looking:
            self._look_later()

    def leave(self, call: PacedCall) -> None:
        """Notes that the request is neither refused nor accepted."""
        self._sent.pop(call, None)

    def accept(self, call: PacedCall) -> None:
        """Notes that the request is not refused."""
        if self._sent.pop(call, None) is not None:
            self.size = min(self.size + 1, LARGEST_SIZE)
            self.opened()

    def open_after(self, seconds: float) -> None:
        """Reports after so many seconds that it has room."""
        if self._opening:
            self._opening.cancel()
        self._opening = asyncio.get_running_loop().call_later(seconds, self.opened)

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(ACCEPTED_SECONDS / LOOKS, self._look)

    def _look(self) -> None:
        self._looks, self._looking = self._looks + 1, None
        for call in [call for call, at in self._sent.items() if at < self._looks]:
            self.accept(call)
        if self._sent and not self._looking:
            self._look_later()
