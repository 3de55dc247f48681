"""Paused delegations: what earlier stacks of a machine left, which goes on only when somebody asks for it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..connection import Script
from ..errors import Conflict, NotFound
from ..ids import first_id
from ..wire import now
from .keys import LEASES, children_key, record_key
from .record import not_found

PAUSE, RESUME = Script("pause"), Script("resume")


async def pause_unfinished(redis: Any, before: str, *, temporary: bool) -> int:
    """Pauses what earlier stacks left, by the rules of ``pause.lua``; returns the number of paused delegations.

    Args:
        redis: The stack's own Redis: no worker of another stack is alive.
        before: The smallest id of this stack's time.
        temporary: Whether this stack lives only as long as the commands that use it.
    """
    head, tail = record_key("\0").split("\0")
    arguments = {"before": before, "temporary": temporary, "record_head": head, "record_tail": tail}
    return await PAUSE.run(redis, [LEASES], arguments)


async def resume(redis: Any, id: str) -> None:
    """Goes on with a paused delegation and its children, or keeps this stack from pausing them.

    Raises ``NotFound``, and ``Conflict`` for a finished one.
    """
    for child in await redis.smembers(children_key(id)):
        with suppress(NotFound, Conflict):
            await resume(redis, child)
    verdict = await RESUME.run(redis, [record_key(id), LEASES], {"id": id, "mark": first_id(now())})
    if verdict == "gone":
        raise not_found(id)
    if verdict == "finished":
        raise Conflict(f"{id} is finished, so it cannot be resumed; `deputize show {id}` has its result")
