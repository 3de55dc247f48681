"""The caps on money of owners: read from the tokens file and published in Redis, where model calls look them up."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..shared.background import RepeatedCause, beside
from ..shared.connection import REDIS_ERRORS, shielded
from ..shared.errors import Misconfigured
from ..shared.runs.caps import Cap, caps_of_owner
from ..shared.runs.keys import OWNER_CAPS, OWNER_WEIGHTS
from ..shared.settings import Settings
from .access_tokens import TokenEntry, TokenFile

LOOK_SECONDS = 2.0
"""Seconds between two looks at the tokens file."""


def caps_by_owner(entries: Iterable[TokenEntry]) -> Mapping[str, list[Cap]]:
    """Returns the caps of each owner. Of several tokens of one owner the lowest cap of each window holds."""
    found = defaultdict[str, dict[str, Cap]](dict)
    for entry in entries:
        own = found[entry.whose]
        for cap in caps_of_owner(entry.spend, entry.whose) if entry.spend else ():
            own[cap.name] = min(cap, own.get(cap.name, cap), key=lambda each: each.usd)
    return {owner: [*caps.values()] for owner, caps in found.items()}


def weights_by_owner(entries: Iterable[TokenEntry]) -> Mapping[str, float]:
    """Returns the weight of each owner."""
    found = dict[str, float]()
    for entry in entries:
        found[entry.whose] = max(entry.weight, found.get(entry.whose, 0))
    return found


async def publish(redis: Any, caps: Mapping[str, list[Cap]], weights: Mapping[str, float] | None = None) -> None:
    """Writes the caps and weights of these owners where they have changed."""
    stored = {owner: own and json.dumps([cap.to_dict() for cap in own]) for owner, own in caps.items()}
    await _write(redis, OWNER_CAPS, stored)
    weighed = {owner: "" if weight == 1 else str(weight) for owner, weight in (weights or {}).items()}
    await _write(redis, OWNER_WEIGHTS, weighed)


async def _write(redis: Any, key: str, wanted: Mapping[str, Any]) -> None:
    """Writes what has changed. Another owner keeps its own: its last token was removed, and its runs may go on."""
    there = await redis.hgetall(key)
    if changed := {owner: text for owner, text in wanted.items() if text and there.get(owner) != text}:
        await redis.hset(key, mapping=changed)
    if gone := [owner for owner, text in wanted.items() if not text and owner in there]:
        await redis.hdel(key, *gone)


@asynccontextmanager
async def published_caps(redis: Any, settings: Settings) -> AsyncGenerator[None]:
    """Publishes what the tokens file caps while the block runs, soon after each change of the file.

    While the file cannot be used, or Redis does not answer, the caps that were published before hold.
    """
    if settings.tokens_file is None:
        yield
        return
    file, trouble = TokenFile(settings.tokens_file), RepeatedCause("the caps of the tokens file are not published")

    async def look() -> None:
        try:
            entries = file.entries()
            await shielded(publish(redis, caps_by_owner(entries), weights_by_owner(entries)))
            trouble.works()
        except (Misconfigured, *REDIS_ERRORS) as error:
            trouble.failed(error)

    async def look_forever() -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await look()

    await look()
    async with beside(look_forever(), "the caps of owners"):
        yield
