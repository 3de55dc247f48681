"""The time limit of a comparison of files, checked between files and inside large ones."""

from __future__ import annotations

import time
from collections.abc import Callable


class Deadline:
    """A deadline in seconds from now, which another thread can move nearer."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deadline = clock() + seconds

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self._clock() >= self._deadline

    def shorten(self, seconds: float) -> None:
        """Moves the deadline to at most so many seconds from now."""
        self._deadline = min(self._deadline, self._clock() + seconds)


UNBOUNDED = Deadline(float("inf"))
