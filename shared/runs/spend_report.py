"""What is spent, reserved and left of the caps on money, and what may not start because one of them is reached."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..errors import SpendCapReached
from ..request import DelegationRequest
from ..wire import Wire, now
from .caps import Cap, caps_of
from .keys import OWNER_CAPS, RESERVED_MONEY, SPENT_MONEY, kept_under, spend_key
from .spend import BILLIONTHS, dates

if TYPE_CHECKING:
    from ..settings import SpendSettings


class CapUse(Wire):
    """One cap, and how much of it is used."""

    name: str
    """The setting, or the window and the owner."""
    days: int | None
    """The width of its window in days (UTC), today included; null: all time."""
    usd: float
    """The cap."""
    spent_usd: float
    """What was spent in the window. A model call that was cut off counts with all that was reserved for it."""
    reserved_usd: float
    """What is reserved for the model calls under way."""
    left_usd: float
    """What new model calls may still reserve."""


async def uses(redis: Any, caps: Sequence[Cap]) -> list[CapUse]:
    """Returns the use of each cap, in their order."""
    days = dates(now(), max((cap.days or 0 for cap in caps), default=0))
    async with redis.pipeline(transaction=False) as pipeline:
        pipeline.time().hgetall(RESERVED_MONEY).hgetall(SPENT_MONEY)
        for day in days:
            pipeline.hgetall(spend_key(day))
        (seconds, _), reserved, in_all, *by_day = await pipeline.execute()
    counted = dict(zip(days, by_day, strict=True))
    today = datetime.fromtimestamp(seconds, UTC)
    found = list[CapUse]()
    for cap in caps:
        window = [f"{today - timedelta(days=ago):%Y-%m-%d}" for ago in range(cap.days or 0)]
        sums = [counted.get(day, {}) for day in window] if cap.days else [in_all]
        spent, held = _usd(*sums, counter=cap.counter), _usd(reserved, counter=cap.counter)
        left = max(0.0, cap.usd - spent - held)
        found.append(
            CapUse(name=cap.name, days=cap.days or None, usd=cap.usd, spent_usd=spent, reserved_usd=held, left_usd=left)
        )
    return found


def _usd(*counts: Mapping[str, str], counter: str) -> float:
    return sum(int(count.get(counter, 0)) for count in counts) / BILLIONTHS


async def owner_caps(redis: Any, owner: str | None = None) -> list[Cap]:
    """Returns the caps of one owner, or of all."""
    texts = await redis.hvals(OWNER_CAPS) if owner is None else [await redis.hget(OWNER_CAPS, owner)]
    return [Cap.of(each) for text in texts if text for each in json.loads(text)]


async def check_caps(redis: Any, spend: SpendSettings, requests: Sequence[DelegationRequest], owner: str = "") -> None:
    """Raises ``SpendCapReached`` for a new delegation whose cap is reached; one that was accepted before may be asked
    for again. ``owner`` is whose delegations and idempotency keys they are.
    """
    own = await owner_caps(redis, owner) if owner else []
    wanted = [[*caps_of(spend, request.labels), *own] for request in requests]
    caps = [*dict.fromkeys(cap for each in wanted for cap in each)]
    reached = {cap: use for cap, use in zip(caps, await uses(redis, caps), strict=True) if use.spent_usd >= cap.usd}
    for request, each in zip(requests, wanted, strict=True):
        for cap in each:
            if cap not in reached:
                continue
            key = kept_under(owner, request.idempotency_key)
            if key is None or not await redis.exists(key):
                raise SpendCapReached(_refusal(cap, reached[cap]))


def _refusal(cap: Cap, use: CapUse) -> str:
    window = {0: "in all", 1: "a day"}.get(cap.days or 0, f"in {cap.days} days")
    until = "midnight UTC" if cap.days == 1 else "a day of its window is over (UTC)" if cap.days else "it is raised"
    return (
        f"{cap.name}: ${use.spent_usd:.4f} of ${cap.usd:g} {window} is spent; nothing more starts before {until}. "
        "Raise the cap to go on now: an owner's in the tokens file, others in the settings of service and workers"
    )


def seconds_to_midnight() -> int:
    """Returns the seconds until the next day begins, in UTC."""
    moment = datetime.now(UTC)
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return max(1, round((midnight - moment).total_seconds()))
