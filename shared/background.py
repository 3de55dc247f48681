"""Background tasks that a process depends on: failures are logged, retries are delayed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from .log import log


class Backoff:
    """Exponential back-off: delays in seconds, doubled on every retry up to ``longest``."""

    def __init__(self, first: float = 0.05, longest: float = 1.0) -> None:
        self._first = first
        self._longest = longest
        self.delay = first
        """Seconds before the next retry."""

    def reset(self) -> None:
        """Starts again with the first delay, after a success."""
        self.delay = self._first

    def next(self) -> float:
        """Returns the delay before this retry, and doubles the one before the next."""
        delay = self.delay
        self.delay = min(2 * delay, self._longest)
        return delay

    async def wait(self) -> None:
        await asyncio.sleep(self.next())


def essential(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Starts ``work`` as a task. If it fails, logs the cause and asks the process to stop."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_ended)
    return task


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None], name: str) -> AsyncGenerator[None]:
    """Does ``essential`` work while the block runs."""
    task = essential(work, name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.critical("%s failed, so this process stops", task.get_name(), exc_info=error)
        os.kill(os.getpid(), signal.SIGTERM)


class RepeatedCause:
    """Logs a repeated failure once per cause, and once more on recovery."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.cause = ""

    def failed(self, error: BaseException) -> None:
        cause = f"{type(error).__name__}: {error}"
        if cause != self.cause:
            self.cause = cause
            log.warning("%s; trying again", self._what, extra={"cause": cause})

    def works(self) -> None:
        if self.cause:
            log.info("recovered: %s", self._what)
        self.cause = ""
