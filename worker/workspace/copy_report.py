"""Reports of a copy that takes long, for those who wait for the run to begin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .tree_copy import CopyTally

T = TypeVar("T")
LONG_SECONDS = 1.0
_REPEAT_SECONDS = 5.0


async def reported(
    copy: Awaitable[T], tally: CopyTally, source: str, report: Callable[[str], None], after: float = LONG_SECONDS
) -> T:
    """Awaits the copy. If it takes longer than ``after`` seconds, reports its progress, and its size at the end."""
    began = time.monotonic()
    reporting = asyncio.create_task(_report_progress(tally, source, report, after))
    try:
        done = await copy
    finally:
        reporting.cancel()
        await asyncio.wait({reporting})
    if (took := time.monotonic() - began) >= after and tally.files:
        report(f"copied {_amount(tally)} of {source} in {took:.1f} s")
    return done


async def _report_progress(tally: CopyTally, source: str, report: Callable[[str], None], after: float) -> None:
    await asyncio.sleep(after)
    while True:
        report(f"copying {source}: {_amount(tally)} so far")
        await asyncio.sleep(_REPEAT_SECONDS)


def _amount(tally: CopyTally) -> str:
    size = f"{tally.bytes / 1e6:,.0f} MB" if tally.bytes >= 1e6 else f"{tally.bytes:,} bytes"
    return f"{tally.files:,} files, {size}"
