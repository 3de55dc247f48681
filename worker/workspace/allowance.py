"""How long a comparison of files may take: asked between files, and inside large ones."""

from __future__ import annotations

import time
from collections.abc import Callable


class Allowance:
    """A deadline that can be moved nearer from another thread."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = clock() + seconds

    @property
    def over(self) -> bool:
        return self._clock() >= self._until

    def shorten(self, seconds: float) -> None:
        """At most so many seconds from now."""
        self._until = min(self._until, self._clock() + seconds)


UNBOUNDED = Allowance(float("inf"))
