"""The process that carries out one run: what its worker passes to it and hears of it, and its end where it stops."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...shared.connection import REDIS_ERRORS, connect
from ...shared.log import log
from ...shared.runs.keys import PRESENCE
from .pool import CLEANUP_SECONDS

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from ...shared.delegation import ToolAgentResult

_STACK_SECONDS = 2.0
"""How long a process that is ended may write where its threads are."""
_PARTS = 10
"""Of the time that a process has to claim its run. A part does not count at whose end Redis takes no writes."""
_LOOK_SECONDS = 3.0


async def takes_writes(redis_url: str, seconds: float = _LOOK_SECONDS) -> bool:
    """Returns whether a process could claim a run now."""
    async with connect(redis_url, timeout=seconds, retries=0) as redis:
        try:
            await redis.zadd(PRESENCE, {"": 0}, xx=True)  # changes nothing
        except REDIS_ERRORS:
            return False
    return True


async def _always() -> bool:
    return True


async def received(
    process: BaseProcess,
    connection: Connection,
    given: bytes,
    claim_seconds: float,
    end_seconds: float = CLEANUP_SECONDS,
    counts: Callable[[], Awaitable[bool]] = _always,
) -> ToolAgentResult | None:
    """Passes a process what it needs, and waits for its end. Returns its answer; None where it has none.

    It writes that it has claimed its run, then the answer, and ends. It is ended where one of these takes too long,
    and the work itself takes as long as its run may. ``counts`` is whether it can claim its run just now: else the time
    for that does not count. Threads read and write: a process may stop in between.
    """
    result, has_claimed, has_answered = None, False, False
    with _opened(process) as running:
        limit = partial(_ended_after, process.name, running)
        with connection, suppress(EOFError, OSError):
            async with limit(claim_seconds, "claim its run", counts):
                await asyncio.to_thread(connection.send_bytes, given)
                has_claimed = await _next_message(connection, running)
            await _readable(connection.fileno(), running)
            async with limit(end_seconds, "write its answer"):
                result, has_answered = await _next_message(connection, running), True
        async with limit(end_seconds, "end after its run"):
            await _readable(running)
    process.join()
    if not has_answered:
        hint = "" if has_claimed else ". Where a script starts the worker, it needs `if __name__ == '__main__'`"
        log.warning("the process %s ended without an answer, with exit code %s%s", process.name, process.exitcode, hint)
    return result


@contextmanager
def _opened(process: BaseProcess) -> Generator[int]:
    """Yields a descriptor that is readable when the process has ended, whatever its own children keep open."""
    assert process.pid
    running = os.pidfd_open(process.pid)
    try:
        yield running
    finally:
        os.close(running)


@asynccontextmanager
async def _ended_after(
    name: str, running: int, seconds: float, what: str, counts: Callable[[], Awaitable[bool]] = _always
) -> AsyncGenerator[None]:
    """Ends the process where the block takes longer; it writes the stacks of its threads before."""

    async def end() -> None:
        left = _PARTS
        while left:
            await asyncio.sleep(seconds / _PARTS)
            left -= await counts()
        log.warning("the process %s did not %s within %.0f s: it is ended", name, what, seconds)
        for number in (signal.SIGABRT, signal.SIGKILL):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(running, number)
            await asyncio.sleep(_STACK_SECONDS)

    ending = asyncio.create_task(end(), name=f"end of {name}")
    try:
        yield
    finally:
        ending.cancel()
        await asyncio.wait({ending})


async def _next_message(connection: Connection, running: int) -> Any:
    """Raises EOFError or OSError where the process has ended without one, or it cannot be unpickled."""
    await _readable(connection.fileno(), running)
    if not connection.poll():
        raise EOFError
    try:
        return await asyncio.to_thread(connection.recv)
    except (EOFError, OSError):
        raise
    except Exception as error:
        log.warning("a message of the process of a run cannot be read: %r", error)
        raise EOFError from error


async def _readable(*descriptors: int) -> None:
    loop, is_one = asyncio.get_running_loop(), asyncio.Event()
    for each in descriptors:
        loop.add_reader(each, is_one.set)
    try:
        await is_one.wait()
    finally:
        for each in descriptors:
            loop.remove_reader(each)
