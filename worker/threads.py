"""Blocking work off the loop: files, diffs, matching.

Each run has its share of threads, of the interpreter (``worker/shares.py``), and of memory for files.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from asyncio import CancelledError, Semaphore
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from threading import Event
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from shared.errors import ErrorType, ToolError
from shared.log import delegation
from worker.shares import Places, Share, Work

P = ParamSpec("P")
T = TypeVar("T")

EXIT_EXCEPTIONS = (CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)
"""Raised to end a task or a process on purpose. Any other ``BaseException`` is a failure of an extension module, which
``except Exception`` does not catch."""
SWITCH_SECONDS = 0.0001
"""How long a thread may keep the interpreter while another one wants it. Python's 5 ms would pass at every answer that
Celery's thread gets from Redis while the loop is busy, and at every file that is read: a full worker would take a
fifth longer.
"""
THREADS = 256
"""For files and diffs. Most of them only wait: few compute at a time."""
LONG = 32
"""Threads of them, at most, in which runs work that have used up what they may compute without waiting."""
NICENESS = 5
"""So much nicer are these threads than the event loop's, which has little to do and many to do it for."""
A_RUN = 2
"""Threads that one run works in at a time: it may queue behind itself, and nobody else behind it."""
_RUNS = 2000
"""Of which is known what they computed lately."""
MAX_BYTES = 128 * 1024 * 1024
"""Of files, in the memory of all such work of a process. Their texts, lines and copies take several times that."""
FEW_BYTES = 256 * 1024
"""Not counted: even a hundred of them are no matter."""
MAX_WAIT = 10.0
_LOOK = 0.05


class _Work(threading.local):
    """What the work of this thread holds."""

    ends: bool = False
    """Whether the end of this work gives back what it holds."""
    bytes: int = 0
    stopped: Event | None = None
    of_run: Work | None = None


class _Turn:
    """What one run may do at a time, and what it has done."""

    def __init__(self) -> None:
        self.threads = Semaphore(A_RUN)
        self.share = Share()


class _Turns:
    """Those of the runs on one event loop."""

    def __init__(self) -> None:
        self.long = Semaphore(LONG)
        self._of_runs: OrderedDict[str, _Turn] = OrderedDict()

    def of(self, run: str) -> _Turn:
        turn = self._of_runs.setdefault(run, _Turn())
        self._of_runs.move_to_end(run)
        if len(self._of_runs) > _RUNS:
            self._of_runs.popitem(last=False)
        return turn


class _Memory:
    """What all work of the process holds."""

    def __init__(self) -> None:
        self.held = 0
        self.freed = threading.Condition()


_work = _Work()
_memory = _Memory()
_places = Places()
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


def share_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Gives the loop the threads that its runs share."""
    sys.setswitchinterval(SWITCH_SECONDS)
    loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="files", initializer=_go_after_the_loop))


def _go_after_the_loop() -> None:
    with suppress(OSError):
        os.nice(NICENESS)  # on Linux, of this thread alone


async def run_in_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """``asyncio.to_thread``, except that a cancelled caller waits until the work is over.

    A thread cannot be stopped, and nothing of a run may go on after the run was told to end. Long work is given
    an Event among its arguments, which is set then, and looks at it.
    """
    stopped = Event()
    async with AsyncExitStack() as turns:
        share = await _share(turns)
        doing = asyncio.ensure_future(asyncio.to_thread(_accounted, share, stopped, work, *args, **kwargs))
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            for event in [stopped, *(each for each in (*args, *kwargs.values()) if isinstance(each, Event))]:
                event.set()
            await asyncio.wait({doing})
            raise


def take_memory(size: int) -> None:
    """Called before so many bytes of a file are read; they are given back when the work of this thread is over.

    Waits while other work has too much. Raises ``ToolError(TIMEOUT)`` where that takes too long. What is read outside
    of such work is not counted: nothing would ever give it back.
    """
    if size <= FEW_BYTES or not _work.ends:
        return
    deadline = time.monotonic() + MAX_WAIT
    if _work.of_run and _memory.held + size > MAX_BYTES:
        _work.of_run.leave()  # others need the place to get done and give their memory back
    with _memory.freed:
        # Who has some already is not made to wait: two that wait for each other would wait for ever.
        while not _work.bytes and _memory.held and _memory.held + size > MAX_BYTES:
            if time.monotonic() > deadline or (_work.stopped and _work.stopped.is_set()):
                raise ToolError(ErrorType.TIMEOUT, "many large files are being read here right now. Try again later.")
            _memory.freed.wait(_LOOK)
        _memory.held += size
        _work.bytes += size


def memory_held() -> int:
    """Bytes of files that work under way has taken."""
    return _memory.held


def give_way() -> None:
    """Called again and again by long work in a thread: runs that have computed less go first."""
    if _work.of_run:
        _work.of_run.give_way()


def _accounted(share: Share | None, stopped: Event, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    _work.ends, _work.stopped = True, stopped
    _work.of_run = of_run = Work(share, _places, stopped) if share else None
    try:
        if of_run:
            of_run.begin()
        return work(*args, **kwargs)
    finally:
        _work.ends, _work.of_run = False, None
        if of_run:
            of_run.leave()
        if _work.bytes:
            with _memory.freed:
                _memory.held -= _work.bytes
                _work.bytes = 0
                _memory.freed.notify_all()


async def _share(turns: AsyncExitStack) -> Share | None:
    """Waits for the run's turn, which ends with ``turns``. What works for no run, such as the janitor, needs none."""
    run = delegation.get()
    if not run:
        return None
    of_loop = _turns.setdefault(asyncio.get_running_loop(), _Turns())
    turn = of_loop.of(run)
    await turns.enter_async_context(turn.threads)
    if turn.share.is_used_up:
        await turns.enter_async_context(of_loop.long)
    return turn.share
