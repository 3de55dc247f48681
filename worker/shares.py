"""How runs share the interpreter: whoever has worked little goes before whoever has worked much.

Threads cannot be stopped, and each that computes takes its part of the interpreter from the event loop. Short work
goes on at once. What a run computes beyond its allowance is done in one of a few places, a slice at a time, and
each free place goes to the run that has computed least.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from threading import Event

PLACES = 2
"""Long pieces of work that go on at a time."""
ALLOWANCE = 0.05
"""Seconds of computing that a run may do without a place."""
REFILLED = 0.01
"""Seconds of it that it gets back each second. Little, as all runs together get it: thirty a third of the time."""
SLICE = 0.01
MAX_WAIT = 2.0
"""Seconds after which work under way goes on for a slice without a place: it may hold what others wait for."""
_LOOK = 0.25


class Share:
    """What one run has computed lately."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent = 0.0
        self._seen = clock()

    @property
    def spent(self) -> float:
        """Seconds, less what it got back since."""
        return max(0.0, self._spent - (self._clock() - self._seen) * REFILLED)

    @property
    def is_used_up(self) -> bool:
        return self.spent >= ALLOWANCE

    def charge(self, seconds: float) -> None:
        self._spent, self._seen = self.spent + seconds, self._clock()


class Places:
    """The places of a process. Called from threads, which wait in ``take``."""

    def __init__(self, count: int = PLACES) -> None:
        self._free = count
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: list[tuple[float, int, Event]] = []

    @property
    def waiting(self) -> int:
        """Pieces of work that wait for a place."""
        return len(self._waiting)

    def take(self, share: Share, stopped: Event, seconds: float | None = None) -> bool:
        """Waits for a place; false where the work is stopped, or ``seconds`` are over, before there is one."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            mine = (share.spent, next(self._numbers), Event())
            heapq.heappush(self._waiting, mine)
        deadline = None if seconds is None else time.monotonic() + seconds
        while not mine[2].wait(_LOOK):
            if stopped.is_set() or (deadline is not None and time.monotonic() > deadline):
                return self._leave(mine)
        return True

    def give_back(self) -> None:
        with self._lock:
            if self._waiting:
                heapq.heappop(self._waiting)[2].set()
            else:
                self._free += 1

    def is_wanted(self, share: Share) -> bool:
        """Whether a run waits that has computed less than this one."""
        with self._lock:
            return bool(self._waiting) and self._waiting[0][0] < share.spent

    def _leave(self, mine: tuple[float, int, Event]) -> bool:
        """Stops waiting; true where the place came in the same moment."""
        with self._lock:
            if mine[2].is_set():
                return True
            self._waiting.remove(mine)
            heapq.heapify(self._waiting)
            return False


class Work:
    """One piece of work of a run, in the thread that does it."""

    def __init__(self, share: Share, places: Places, stopped: Event) -> None:
        self._share, self._places, self._stopped = share, places, stopped
        self._has_place = False
        self._counted = time.thread_time()

    def begin(self) -> None:
        if self._share.is_used_up:
            self._has_place = self._places.take(self._share, self._stopped)

    def give_way(self) -> None:
        """Lets other runs go first when this one's slice is over."""
        if time.thread_time() - self._counted < SLICE:
            return
        self._charge()
        if self._has_place and self._places.is_wanted(self._share):
            self.leave()
        if not self._has_place and self._share.is_used_up and not self._stopped.is_set():
            self._has_place = self._places.take(self._share, self._stopped, MAX_WAIT)

    def leave(self) -> None:
        """Gives the place to others: at the end, and before it waits for something else."""
        self._charge()
        if self._has_place:
            self._has_place = False
            self._places.give_back()

    def _charge(self) -> None:
        now = time.thread_time()
        self._share.charge(now - self._counted)
        self._counted = now
