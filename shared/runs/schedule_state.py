"""What the services know together of each schedule, in Redis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..connection import Script
from .keys import METRICS, schedule_key

CHANGE = Script("count", "schedule")
KEPT_SECONDS = 90 * 24 * 3600


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """One schedule; "" is what is not there. Times are seconds since the epoch."""

    times: str = ""
    """What its next time was computed of."""
    due: str = ""
    """Its next time."""
    pending: str = ""
    """The time for which a delegation has to be accepted: that is decided, and not yet done."""
    last: str = ""
    """Its last delegation."""
    last_due: str = ""
    """The time for which that was accepted."""
    judged: str = ""
    """The last delegation whose end was counted."""
    failures: str = ""
    """How many in a row have failed."""
    paused: str = ""
    """Why it is paused."""
    skipped: str = ""
    """The last time at which nothing began, because the last delegation was not finished."""
    error: str = ""
    """Why the last time could not begin anything."""


NAMES = [field.name for field in fields(ScheduleState)]


async def states_of(redis: Any, names: list[str]) -> tuple[int, dict[str, ScheduleState]]:
    """Returns the time of Redis, by which all services go, and the schedules."""
    async with redis.pipeline(transaction=False) as pipeline:
        pipeline.time()
        for name in names:
            pipeline.hmget(schedule_key(name), NAMES)
        (seconds, _), *found = await pipeline.execute()
    states = {
        name: ScheduleState(**{key: value or "" for key, value in zip(NAMES, values, strict=True)})
        for name, values in zip(names, found, strict=True)
    }
    return seconds, states


async def change(
    redis: Any, name: str, seen: dict[str, str], counts: Mapping[str, int] | None = None, /, **changed: str
) -> bool:
    """Sets fields where those of ``seen`` are as they were. Returns whether this call has changed them.

    ``counts`` is added to the metrics in the same step.
    """
    arguments = {"seen": seen, "set": changed, "seconds": KEPT_SECONDS, "metrics": METRICS, "counts": counts or {}}
    return bool(await CHANGE.run(redis, [schedule_key(name)], arguments))
