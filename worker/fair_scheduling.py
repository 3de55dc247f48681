"""Fair scheduling of CPU work in threads: the run that has computed least recently goes first.

Threads cannot be stopped, and each that computes takes interpreter time from the event loop. Short work starts
immediately. What a run computes beyond its allowance needs one of a few compute slots, a time slice each, and a
free slot goes to the waiting run that has computed least.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from threading import Event

SLOTS = 2
"""How many long computations run at a time."""
ALLOWANCE = 0.05
"""Seconds of computing that a run may do without a slot."""
REFILLED = 0.01
"""Seconds of allowance refilled per second. Small, because every run gets it: thirty runs get a third of the time."""
SLICE = 0.01
MAX_WAIT = 2.0
"""Seconds after which waiting work proceeds for a slice without a slot: it may hold a resource others wait for."""
_LOOK = 0.25


class Share:
    """The recent computing time of one run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent = 0.0
        self._seen = clock()

    @property
    def spent(self) -> float:
        """Seconds computed, less what was refilled since."""
        return max(0.0, self._spent - (self._clock() - self._seen) * REFILLED)

    @property
    def is_used_up(self) -> bool:
        return self.spent >= ALLOWANCE

    def charge(self, seconds: float) -> None:
        self._spent, self._seen = self.spent + seconds, self._clock()


class ComputeSlots:
    """The compute slots of a process. Called from threads, which block in ``take``."""

    def __init__(self, count: int = SLOTS) -> None:
        self._free = count
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: list[tuple[float, int, Event]] = []

    @property
    def waiting(self) -> int:
        """How many threads wait for a slot."""
        return len(self._waiting)

    def take(self, share: Share, stopped: Event, seconds: float | None = None) -> bool:
        """Waits for a slot; returns False where the work is stopped, or ``seconds`` pass, before one is free."""
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
        """Whether a run that has computed less than this one is waiting."""
        with self._lock:
            return bool(self._waiting) and self._waiting[0][0] < share.spent

    def _leave(self, mine: tuple[float, int, Event]) -> bool:
        """Stops waiting; returns True where a slot was assigned at the same moment."""
        with self._lock:
            if mine[2].is_set():
                return True
            self._waiting.remove(mine)
            heapq.heapify(self._waiting)
            return False


class Work:
    """One computation of a run, in its thread."""

    def __init__(self, share: Share, slots: ComputeSlots, stopped: Event) -> None:
        self._share, self._slots, self._stopped = share, slots, stopped
        self._has_slot = False
        self._counted = time.thread_time()

    def begin(self) -> None:
        if self._share.is_used_up:
            self._has_slot = self._slots.take(self._share, self._stopped)

    def give_way(self) -> None:
        """Yields to other runs when the time slice is over."""
        if time.thread_time() - self._counted < SLICE:
            return
        self._charge()
        if self._has_slot and self._slots.is_wanted(self._share):
            self.leave()
        if not self._has_slot and self._share.is_used_up and not self._stopped.is_set():
            self._has_slot = self._slots.take(self._share, self._stopped, MAX_WAIT)

    def leave(self) -> None:
        """Releases the slot: at the end, and before blocking on something else."""
        self._charge()
        if self._has_slot:
            self._has_slot = False
            self._slots.give_back()

    def _charge(self) -> None:
        now = time.thread_time()
        self._share.charge(now - self._counted)
        self._counted = now
