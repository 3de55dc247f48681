"""Blocking work in threads: files, diffs, matching.

Each run has a share of the threads, of interpreter time, and of the memory for files. Threads cannot be stopped, and
each that computes takes interpreter time from the event loop. Short work starts at once. What a run computes beyond
its allowance needs one of a few compute slots, a time slice each, and a free slot goes to the waiting run that has
computed least. `worker/docs/blocking-work.md` has what to call where.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
import sys
import threading
import time
from asyncio import CancelledError, Semaphore
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from contextvars import copy_context
from threading import Event
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from ..shared.errors import ErrorType, ToolError
from ..shared.log import delegation

P = ParamSpec("P")
T = TypeVar("T")

EXIT_EXCEPTIONS = (CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)
"""Raised to end a task or a process on purpose. Any other ``BaseException`` is a failure of an extension module."""
SWITCH_SECONDS = 0.0005
"""Interpreter switch interval. With Python's 5 ms, a thread would wait that long at every Redis reply and every file
read while the loop is busy: a full worker would take a fifth longer. With 0.1 ms, threads that compute would interrupt
each other and the loop so often that it costs a twentieth of the CPU time.
"""
THREADS = 256
"""For files and diffs. Most threads wait for I/O; few compute at a time."""
LONG_WORK_THREADS = 32
"""How many of them, at most, serve runs that have used up their computing allowance."""
NICENESS = 5
"""Added niceness of these threads: the event loop's short work for all runs takes precedence."""
SHORT_WORK_THREADS = 2
"""How many of them start work at a time: more would only take the interpreter from each other."""
SHORT_SECONDS = 0.01
"""Time after which work is not short, and the next one starts beside it."""
THREADS_PER_RUN = 2
"""Threads per run at a time: a run queues behind its own work, other runs do not."""
_RUNS = 2000
"""Runs whose recent computing time is kept."""
MAX_BYTES = 128 * 1024 * 1024
"""File bytes held in memory by all threads of a process. Their texts, lines and copies take several times that."""
UNCOUNTED_BYTES = 256 * 1024
"""Smaller files are not counted: even a hundred of them are negligible."""
MEMORY_WAIT = 10.0
MEMORY_LOOK = 0.05
SLOTS = 2
"""How many long computations run at a time."""
ALLOWANCE = 0.05
"""Seconds of computing that a run may do without a slot."""
REFILLED = 0.01
"""Seconds of allowance refilled per second. Small, because every run gets it: thirty runs get a third of the time."""
SLICE = 0.01
SLOT_WAIT = 2.0
"""Seconds after which waiting work proceeds for a slice without a slot: it may hold a resource others wait for."""
SLOT_LOOK = 0.25


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
        while not mine[2].wait(SLOT_LOOK):
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


class _Work:
    """One piece of work in its thread, and what it holds until it ends: a compute slot, and memory for files."""

    def __init__(self, share: Share | None, stopped: Event, leave_place: Callable[[], object]) -> None:
        self._share = share
        """None for work that belongs to no run."""
        self.stopped, self.leave_place = stopped, leave_place
        self.bytes = 0
        self._has_slot = False
        self._counted = 0.0

    def run(self, work: Callable[[], T]) -> T:
        _thread.work, self._counted = self, time.thread_time()
        try:
            if self._share and self._share.is_used_up:
                self._has_slot = _slots.take(self._share, self.stopped)
            return work()
        finally:
            _thread.work = None
            self.leave()
            if self.bytes:
                with memory.freed:
                    memory.held -= self.bytes
                    memory.freed.notify_all()

    def give_way(self) -> None:
        """Yields to other runs when the time slice is over."""
        if self._share is None or time.thread_time() - self._counted < SLICE:
            return
        self._charge(self._share)
        if self._has_slot and _slots.is_wanted(self._share):
            self.leave()
        if not self._has_slot and self._share.is_used_up and not self.stopped.is_set():
            self._has_slot = _slots.take(self._share, self.stopped, SLOT_WAIT)

    def leave(self) -> None:
        """Releases the slot: at the end, and before blocking on something else."""
        if self._share:
            self._charge(self._share)
        if self._has_slot:
            self._has_slot = False
            _slots.give_back()

    def _charge(self, share: Share) -> None:
        now = time.thread_time()
        share.charge(now - self._counted)
        self._counted = now


class _Thread(threading.local):
    work: _Work | None = None


class _Runs:
    """The runs on one event loop."""

    def __init__(self) -> None:
        self.long = Semaphore(LONG_WORK_THREADS)
        self.short = Semaphore(SHORT_WORK_THREADS)
        self._bounds: OrderedDict[str, tuple[Semaphore, Share]] = OrderedDict()

    def bounds_of(self, run: str) -> tuple[Semaphore, Share]:
        """Returns the concurrency limit and the computing share of a run."""
        bounds = self._bounds.setdefault(run, (Semaphore(THREADS_PER_RUN), Share()))
        self._bounds.move_to_end(run)
        if len(self._bounds) > _RUNS:
            self._bounds.popitem(last=False)
        return bounds


class Memory:
    """The file memory held by all threads of the process."""

    def __init__(self) -> None:
        self.held = 0
        self.freed = threading.Condition()


_thread = _Thread()
memory = Memory()
_slots = ComputeSlots()
_runs: WeakKeyDictionary[asyncio.AbstractEventLoop, _Runs] = WeakKeyDictionary()


def share_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Sets the loop's default executor, which its runs share."""
    sys.setswitchinterval(SWITCH_SECONDS)
    loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="files", initializer=_go_after_the_loop))


def _go_after_the_loop() -> None:
    with suppress(OSError):
        os.nice(NICENESS)  # on Linux, of this thread alone


async def run_in_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Like ``asyncio.to_thread``, but a cancelled caller waits until the work has ended.

    A thread cannot be stopped, and no work of a run may continue after the run has ended. Long work takes an Event
    as an argument, which is set on cancellation, and checks it.
    """
    if not (run := delegation.get()):
        return await _to_the_end(None, None, work, *args, **kwargs)  # the janitor's, for example
    loop = asyncio.get_running_loop()
    runs = _runs.setdefault(loop, _Runs())
    threads, share = runs.bounds_of(run)
    async with threads:
        places = runs.long if share.is_used_up else runs.short
        await places.acquire()
        with ExitStack() as place:  # closed once: when the work ends, waits for others, or is not short any more
            place.callback(places.release)
            if places is runs.short:
                place.callback(loop.call_later(SHORT_SECONDS, place.close).cancel)
            return await _to_the_end(share, place, work, *args, **kwargs)


async def run_short(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for work that is nearly always short, such as reading a file: it does not wait for that of others."""
    if run := delegation.get():
        threads, share = _runs.setdefault(asyncio.get_running_loop(), _Runs()).bounds_of(run)
        if not share.is_used_up:
            async with threads:
                return await _to_the_end(share, None, work, *args, **kwargs)
    return await run_in_thread(work, *args, **kwargs)


def take_memory(size: int) -> None:
    """Reserves memory before ``size`` bytes of a file are read; released when this thread's work ends.

    Waits while other work holds too much. Raises ``ToolError(TIMEOUT)`` where that takes too long. Reads outside of
    such work are not counted: nothing would ever release them.
    """
    if size <= UNCOUNTED_BYTES or (work := _thread.work) is None:
        return
    deadline = time.monotonic() + MEMORY_WAIT
    if memory.held + size > MAX_BYTES:
        work.leave()  # others need the slot to finish and release their memory
    with memory.freed:
        # A thread that holds memory already does not wait: two waiting for each other would deadlock.
        while not work.bytes and memory.held and memory.held + size > MAX_BYTES:
            if time.monotonic() > deadline or work.stopped.is_set():
                raise ToolError(ErrorType.TIMEOUT, "many large files are being read here right now. Try again later.")
            memory.freed.wait(MEMORY_LOOK)
        memory.held += size
        work.bytes += size


def give_way() -> None:
    """Yields to runs that have computed less; long work in a thread calls it repeatedly."""
    if _thread.work:
        _thread.work.give_way()


def release_slot(*, with_place: bool = False) -> Event | None:
    """Releases the compute slot of this thread's work, before it waits. Returns what is set when that is to stop.

    ``with_place``: also its place among the long work, for good. Many runs may wait then.
    """
    if _thread.work:
        _thread.work.leave()
        if with_place:
            _thread.work.leave_place()
    return _thread.work and _thread.work.stopped


async def _to_the_end(
    share: Share | None, place: ExitStack | None, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    stopped, context, loop = Event(), copy_context(), asyncio.get_running_loop()
    started = _Work(share, stopped, lambda: place and loop.call_soon_threadsafe(place.close))
    doing = loop.run_in_executor(None, lambda: context.run(started.run, lambda: work(*args, **kwargs)))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        for event in [stopped, *(each for each in (*args, *kwargs.values()) if isinstance(each, Event))]:
            event.set()
        await asyncio.wait({doing})
        doing.exception()  # expected, as it was stopped: asyncio would log it otherwise
        raise
