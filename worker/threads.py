"""Blocking work off the loop: files, diffs, matching."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Event
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def to_the_end(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """``asyncio.to_thread``, except that a cancelled caller waits until the work is over.

    A thread cannot be stopped, and nothing of a run may go on after the run was told to end. Long work is given
    an Event among its arguments, which is set then, and looks at it.
    """
    doing = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        for event in [each for each in (*args, *kwargs.values()) if isinstance(each, Event)]:
            event.set()
        with suppress(Exception):
            await asyncio.shield(doing)
        raise
