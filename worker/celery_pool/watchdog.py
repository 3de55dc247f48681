"""Reports the stack that blocks the event loop while it does: a stall stops every delegation of this process."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from types import FrameType

STALL_SECONDS = 0.1
PERIOD_SECONDS = 0.05
QUIET_SECONDS = 10
"""At most one report per interval: an overloaded machine would fill the log with one cause."""

logger = logging.getLogger(__name__)


class Watchdog(threading.Thread):
    """Checks periodically, from a thread of its own, that the loop responds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._loop = loop
        self._watched = thread
        self._stopped = threading.Event()
        self._quiet_until = 0.0
        self.stalls = 0
        self.longest = 0.0

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        while not self._stopped.wait(PERIOD_SECONDS):
            alive = threading.Event()
            asked = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(alive.set)
            except RuntimeError:  # the loop was closed
                return
            if not alive.wait(STALL_SECONDS):
                self._stalled(alive, asked)

    def _stalled(self, alive: threading.Event, asked: float) -> None:
        stack = self._blocked_stack()
        while not alive.wait(1):
            if self._stopped.is_set():
                return
            stack = self._blocked_stack() or stack
        if stack is None:  # the loop has nothing to do: this machine gave us no time
            return
        lasted = time.monotonic() - asked
        self.stalls += 1
        self.longest = max(self.longest, lasted)
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + QUIET_SECONDS
            logger.warning("the event loop was blocked for %.0f ms in:\n%s", lasted * 1000, stack)

    def _blocked_stack(self) -> str | None:
        """Returns the stack of the loop's thread; None where it runs no Python code."""
        frame: FrameType | None = sys._current_frames().get(self._watched.ident or 0)  # pyright: ignore[reportPrivateUsage]
        if frame is None or frame.f_code.co_filename == asyncio.runners.__file__:
            return None
        return "".join(traceback.format_stack(frame, limit=8))
