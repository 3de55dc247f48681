"""Waiting in tests: for a condition, never for a time."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

TICK = 0.01
LONGEST_TICK = 0.05
"""Seconds between two looks. A long wait for what a service answers looks less often, as each look is a request."""


async def until(condition: Callable[[], Any | Awaitable[Any]], timeout: float = 60) -> Any:
    """Awaits the first true value of ``condition`` and returns it; fails the test after ``timeout`` seconds."""
    begun = time.monotonic()
    while True:
        value, longest = condition(), TICK
        if inspect.isawaitable(value):
            value, longest = await value, LONGEST_TICK
        if value:
            return value
        await asyncio.sleep(min(longest, _pause(begun, timeout, condition)))


def until_sync(condition: Callable[[], Any], timeout: float = 60) -> Any:
    """``until`` for fixtures and tests without an event loop."""
    begun = time.monotonic()
    while not (value := condition()):
        threading.Event().wait(min(TICK, _pause(begun, timeout, condition)))
    return value


def _pause(begun: float, timeout: float, condition: Callable[[], Any]) -> float:
    waited = time.monotonic() - begun
    if waited > timeout:
        raise AssertionError(f"not within {timeout} s: {_source(condition)}")
    return max(TICK, waited / 10)


def _source(condition: Callable[[], Any]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return repr(condition)
