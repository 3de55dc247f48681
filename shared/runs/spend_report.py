"""What is spent, reserved and left of the caps on money, and what may not start because one of them is reached."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..delegation import Progress
from ..errors import SpendCapReached
from ..limits import Limits
from ..request import DelegationRequest
from ..wire import now
from .caps import WINDOWS, Cap, caps_of
from .cost import CapUse, CostReport, Forecast, cost_report, fields_of_records
from .keys import LEASES, OWNER_CAPS, RESERVED_MONEY, SPENT_MONEY, spend_key
from .record import OWNER
from .spend import BILLIONTHS, dates
from .store import kept_for

if TYPE_CHECKING:
    from ..settings import SpendSettings

MOST_FORECASTS, MOST_VALUES = 100, 100
"""How many forecasts a report has, and how many values of a label whose key is capped."""


async def money_report(
    redis: Any, spend: SpendSettings, by: str, since: datetime | None, owner: str | None = None
) -> CostReport:
    """Returns what delegations cost, with the use of caps and the forecasts: of an owner, or all."""
    costs = await cost_report(redis, by, since, owner)
    of_all = await _caps_of_settings(redis, spend) if owner is None else []
    caps = await uses(redis, [*of_all, *await owner_caps(redis, owner)])
    return costs.model_copy(update={"caps": caps, "forecasts": await forecasts(redis, owner)})


async def _caps_of_settings(redis: Any, spend: SpendSettings) -> list[Cap]:
    """Returns the caps of the fleet and those of the labels that have counted for one within its widest window."""
    found = [*caps_of(spend, {})]
    if not spend.per_label:
        return found
    async with redis.pipeline(transaction=False) as pipeline:
        for day in dates(now(), max(WINDOWS.values())):
            pipeline.hkeys(spend_key(day))
        counted = {counter for keys in await pipeline.execute() for counter in keys}
    for name in spend.per_label:
        values = sorted(each.removeprefix(f"{name}:") for each in counted if each.startswith(f"{name}:"))
        labels = [{name: value} for value in values[:MOST_VALUES]]
        if ":" in name:
            key, _, value = name.partition(":")
            labels.append({key: value})
        found += [cap for each in labels for cap in caps_of(spend, each)]
    return [*dict.fromkeys(found)]


async def forecasts(redis: Any, owner: str | None = None) -> list[Forecast]:
    """Returns those of the delegations that run now and have a price, of an owner or all, the highest first."""
    ids = await redis.zrange(LEASES, 0, -1)
    records = await fields_of_records(redis, ids, "path", "progress", "limits", OWNER)
    spent, roots = Counter[str](), dict[str, tuple[Progress, Limits]]()
    for id, (path, progress, limits, of) in zip(ids, records, strict=True):
        if progress is None or owner not in (None, of or ""):
            continue
        made, (root, *_) = Progress.model_validate_json(progress), (path or id).split()
        spent[root] += made.cost_usd or 0  # pyright: ignore[reportArgumentType]
        if root == id:
            roots[id] = made, Limits.model_validate_json(limits)
    found = [_forecast(id, spent[id], *roots[id]) for id in roots if spent[id] and roots[id][0].turn]
    return sorted(found, key=lambda each: -each.forecast_usd)[:MOST_FORECASTS]


def _forecast(id: str, spent: float, made: Progress, limits: Limits) -> Forecast:
    whole = spent + spent / made.turn * max(0, limits.max_turns - made.turn)
    return Forecast(
        delegation_id=id,
        turn=made.turn,
        max_turns=limits.max_turns,
        spent_usd=spent,
        forecast_usd=whole if limits.max_cost_usd is None else max(spent, min(whole, limits.max_cost_usd)),
        max_cost_usd=limits.max_cost_usd,
    )


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
    texts = (await redis.hgetall(OWNER_CAPS)).values() if owner is None else [await redis.hget(OWNER_CAPS, owner)]
    return [Cap.of(each) for text in texts if text for each in json.loads(text)]


async def check_caps(redis: Any, spend: SpendSettings, requests: Sequence[DelegationRequest], owner: str = "") -> None:
    """Raises ``SpendCapReached`` for a new delegation whose cap is reached; one that was accepted before may be asked
    for again, and one that waits at a cap waits. ``owner`` is whose delegations and idempotency keys they are.
    """
    own = await owner_caps(redis, owner) if owner else []
    wanted = [[*caps_of(spend, request.labels), *own] for request in requests]
    caps = [*dict.fromkeys(cap for each in wanted for cap in each)]
    reached = {cap: use for cap, use in zip(caps, await uses(redis, caps), strict=True) if use.spent_usd >= cap.usd}
    for request, each in zip(requests, wanted, strict=True):
        for cap in each:
            if cap not in reached or (request.on_cap == "wait" and cap.days and cap.usd):
                continue
            key = request.idempotency_key
            if key is None or not await redis.exists(kept_for(key, owner)):
                raise SpendCapReached(_refusal(cap, reached[cap]))


def _refusal(cap: Cap, use: CapUse) -> str:
    raised = "Raise the cap to go on now: an owner's in the tokens file, others in the settings of service and workers"
    if not cap.usd:
        return f"{cap.name}: it is $0, so nothing starts before it is raised. {raised}"
    window = {0: "in all", 1: "a day"}.get(cap.days or 0, f"in {cap.days} days")
    until = "midnight UTC" if cap.days == 1 else "a day of its window is over (UTC)" if cap.days else "it is raised"
    return (
        f"{cap.name}: ${use.spent_usd:.4f} of ${cap.usd:g} {window} is spent; nothing more starts before {until}. "
        + raised
    )


def seconds_to_midnight() -> int:
    """Returns the seconds until the next day begins, in UTC."""
    moment = datetime.now(UTC)
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return max(1, round((midnight - moment).total_seconds()))
