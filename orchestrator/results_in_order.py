"""Waits for several results: the first error ends all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

from ..shared.delegation import ToolAgentResult
from ..shared.errors import DeputizeError


async def in_order(waits: Iterable[Awaitable[ToolAgentResult]]) -> list[ToolAgentResult]:
    """Returns what all return. The first error ends the waits for the others, and has the results until then."""
    results = [asyncio.ensure_future(each) for each in waits]
    try:
        return await asyncio.gather(*results)
    except DeputizeError as error:
        error.results = [
            each.result() if each.done() and not each.cancelled() and each.exception() is None else None
            for each in results
        ]
        raise
    finally:
        await ended(results)


async def ended(waits: Sequence[asyncio.Future[Any]]) -> None:
    for each in waits:
        each.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
