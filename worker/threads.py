"""Blocking work off the loop: files, diffs, matching. Each run has its share of threads, and of memory for files."""

from __future__ import annotations

import asyncio
import threading
import time
from asyncio import AbstractEventLoop, Semaphore
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from threading import Event
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from shared.errors import ErrorType, ToolError
from shared.log import delegation

P = ParamSpec("P")
T = TypeVar("T")

A_RUN = 2
"""Threads that one run works in at a time: it may queue behind itself, and nobody else behind it."""
MAX_BYTES = 128 * 1024 * 1024
"""Of files, in the memory of all such work of a process. Their texts, lines and copies take several times that."""
FEW_BYTES = 256 * 1024
"""Not counted: even a hundred of them are no matter."""
MAX_WAIT = 10.0
_LOOK = 0.05

_turns: WeakKeyDictionary[AbstractEventLoop, WeakValueDictionary[str, Semaphore]] = WeakKeyDictionary()


class _Work(threading.local):
    """What the work of this thread holds."""

    bytes: int = 0
    stopped: Event | None = None


class _Memory:
    """What all work of the process holds."""

    def __init__(self) -> None:
        self.held = 0
        self.freed = threading.Condition()


_work = _Work()
_memory = _Memory()


async def to_the_end(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """``asyncio.to_thread``, except that a cancelled caller waits until the work is over.

    A thread cannot be stopped, and nothing of a run may go on after the run was told to end. Long work is given
    an Event among its arguments, which is set then, and looks at it.
    """
    stopped = Event()
    async with _turn():
        doing = asyncio.ensure_future(asyncio.to_thread(_accounted, stopped, work, *args, **kwargs))
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            for event in [stopped, *(each for each in (*args, *kwargs.values()) if isinstance(each, Event))]:
                event.set()
            with suppress(Exception):
                await asyncio.shield(doing)
            raise


def take_memory(size: int) -> None:
    """Called before so many bytes of a file are read; they are given back when the work of this thread is over.

    Waits while other work has too much. Raises ``ToolError(TIMEOUT)`` where that takes too long.
    """
    if size <= FEW_BYTES:
        return
    deadline = time.monotonic() + MAX_WAIT
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


def _accounted(stopped: Event, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    _work.stopped = stopped
    try:
        return work(*args, **kwargs)
    finally:
        if _work.bytes:
            with _memory.freed:
                _memory.held -= _work.bytes
                _work.bytes = 0
                _memory.freed.notify_all()


@asynccontextmanager
async def _turn() -> AsyncGenerator[None]:
    """The run's turn; what works for no run, such as the janitor, needs none."""
    run = delegation.get()
    if not run:
        yield
        return
    turns = _turns.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    turn = turns.setdefault(run, Semaphore(A_RUN))
    async with turn:
        yield
