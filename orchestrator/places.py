"""How many callers may wait for news at a time: each holds a connection and a follower of events."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from shared.errors import Unavailable


class Places:
    """Places for event streams and for requests that wait for a delegation's end."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    @contextmanager
    def one(self) -> Generator[None]:
        """Raises Unavailable where all are taken."""
        if self._taken >= self._most:
            raise Unavailable(
                f"{self._most} callers wait for news already; try again in a moment, or set DEPUTIZE_MAX_STREAMS"
            )
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1
