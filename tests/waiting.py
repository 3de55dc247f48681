"""Waiting in tests: for a condition, never for a time."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

TICK = 0.01
LONGEST_TICK = 0.05
"""Seconds between two looks. Where a look is awaited, which may be a request, they come to be rarer."""


async def until(condition: Callable[[], Any | Awaitable[Any]], timeout: float = 120) -> Any:
    """Awaits the first true value of ``condition`` and returns it; fails the test after ``timeout`` seconds."""
    deadline, pause = time.monotonic() + timeout, TICK
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value, pause = await value, min(LONGEST_TICK, pause * 1.1)
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {_said(condition)}")
        await asyncio.sleep(pause)


def until_sync(condition: Callable[[], Any], timeout: float = 120) -> Any:
    """``until`` for fixtures and tests without an event loop."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {_said(condition)}")
        threading.Event().wait(TICK)
    return value


async def until_it_waits(pid: int) -> None:
    """Waits until a process waits itself: the interpreter overlooks a signal that comes just before a read begins."""
    await until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "S")


def _said(condition: Callable[[], Any]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return repr(condition)
