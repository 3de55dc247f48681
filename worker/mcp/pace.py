"""How much a server may say: bursts are heard at once, a flood as slowly as it harms nobody, and not for ever.

What a server says is read and parsed on the event loop that all runs of this process share.
"""

from __future__ import annotations

import time
from collections.abc import Callable

BURST_BYTES, BYTES_A_SECOND = 10 * 1024 * 1024, 1024 * 1024
BURST_LINES, LINES_A_SECOND = 500, 50
LONGEST_PAUSE = 1.0
MAX_PAUSED = 30.0
"""Seconds of pauses, without a moment's rest, after which the server is not listened to any more."""


class Pace:
    """The pace of one server: says how long it is not to be listened to."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen = clock()
        self._bytes = float(BURST_BYTES)
        self._lines = float(BURST_LINES)
        self._paused = 0.0

    def pause(self, size: int, lines: int) -> float:
        """Seconds to wait before it is listened to again, after so much was heard; 0 where it may go on."""
        now = self._clock()
        passed, self._seen = now - self._seen, now
        self._bytes = min(BURST_BYTES, self._bytes + passed * BYTES_A_SECOND)
        self._lines = min(BURST_LINES, self._lines + passed * LINES_A_SECOND)
        if self._bytes == BURST_BYTES and self._lines == BURST_LINES:
            self._paused = 0.0
        self._bytes -= size
        self._lines -= lines
        owed = max(-self._bytes / BYTES_A_SECOND, -self._lines / LINES_A_SECOND, 0.0)
        pause = min(owed, LONGEST_PAUSE)
        self._paused += pause
        return pause

    @property
    def exhausted(self) -> bool:
        """Whether it says more than anybody could want to hear."""
        return self._paused > MAX_PAUSED
