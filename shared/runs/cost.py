"""The cost of delegations, from their records: each by itself, or grouped by day, model, session or label."""

from __future__ import annotations

import json
import re
from asyncio import to_thread
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from heapq import nsmallest
from typing import Any

from pydantic import Field
from pydantic_core import from_json

from ..delegation import Usage
from ..ids import first_id
from ..wire import Timestamp, Wire
from .keys import BILLS, LEASES, filed_key, record_key
from .record import LABELS, MODEL, OWNER, SESSION, SPENT

GROUPS = "day, model, session, label, label:KEY or delegation"
_GROUP = re.compile(r"day|model|session|delegation|label(:.+)?", re.DOTALL)
DEAREST, MOST_GROUPS = 10, 1000
"""By delegation, and by anything else but days, only so many are reported; the total has all."""
PAGE = 200
"""Entries of the index that are read at a time."""
_COST = 5 + [*Usage.model_fields].index("cost_usd")
_END = 5 + len(Usage.model_fields)
"""Bills that earlier versions filed are shorter."""
_END_OF_TOTAL = 6 + [*Usage.model_fields].index("cache_write_tokens")
"""Before it are the tokens that ``Usage.total`` adds up."""


class Cost(Wire):
    """The cost of a group of delegations; each counts its own spending, without its child delegations."""

    key: str | None
    """The day, model, session, label or id; null for delegations without that label or session, or that never began."""
    delegations: int = 0
    """How many delegations are in the group."""
    unpriced: int = 0
    """How many of them have a cost that is not known."""
    usage: Usage = Usage()
    """Their tokens, and the sums of the amounts of money that are known; null where none is."""


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


class Forecast(Wire):
    """The cost of a running delegation with its subagents, if each of the turns that it has left costs as those so far.

    It is bounded by the delegation's own `maxCostUsd`. Most delegations end before their last turn.
    """

    delegation_id: str
    """The delegation that its caller made; those of its subagents count for it."""
    turn: int
    """How many turns it has made."""
    max_turns: int
    """How many it may make."""
    spent_usd: float
    """What it and its subagents have spent so far."""
    forecast_usd: float
    """The cost at its end."""
    max_cost_usd: float | None
    """Its limit; null: it has none."""


class CostReport(Wire):
    by: str
    """What the groups are made by."""
    since: Timestamp | None = None
    """Only delegations that were accepted since then are counted; null: all."""
    items: list[Cost] = Field(default_factory=list[Cost])
    """One entry per group: each day, the 1,000 most expensive of other groups, the ten most expensive delegations."""
    total: Cost = Cost(key=None)
    """All groups together."""
    caps: list[CapUse] = Field(default_factory=list[CapUse])
    """The caps on money that hold now, each with its use; those of the caller's owner, or all for the scope `all`."""
    forecasts: list[Forecast] = Field(default_factory=list[Forecast])
    """The delegations that run now, those that will cost most first, at most 100."""


Bill = Sequence[Any]
"""What one delegation spent itself: its id, day, model, session and labels, and from 5 on the fields of ``Usage``.

Where it is filed (``file.lua``) the first one is the second in which its record expires."""


def bill_of(id: str, day: str, model: str | None, session: str | None, labels: Mapping[str, str], usage: Usage) -> Bill:
    return [id, day, model, session, labels, *dict(usage).values()]


async def fields_of_records(redis: Any, ids: Sequence[str], *names: str) -> list[list[Any]]:
    """Returns these fields of the record of each delegation, None for those that are not set."""
    found: list[list[Any]] = []
    for start in range(0, len(ids), PAGE):
        async with redis.pipeline(transaction=False) as pipeline:
            for id in ids[start : start + PAGE]:
                pipeline.hmget(record_key(id), names)
            found += await pipeline.execute()
    return found


def check_group(by: str) -> str:
    """Returns ``by``. Raises ValueError where delegations cannot be grouped by it."""
    if not _GROUP.fullmatch(by):
        raise ValueError(f"{by[:100]!r} is not one of {GROUPS}")
    return by


def group_keys(by: str) -> Callable[[Bill], Iterable[str | None]]:
    """Returns a function that returns the groups of a bill; with ``label`` a delegation is in one for each label."""
    if by == "label":
        return lambda bill: [f"{key}:{value}" for key, value in bill[4].items()] or [None]
    if by.startswith("label:"):
        label = by.removeprefix("label:")
        return lambda bill: [bill[4].get(label)]
    place = ("delegation", "day", "model", "session").index(by)
    return lambda bill: [bill[place] or None]


def added_up(bills: Sequence[Bill], by: str, since: datetime | None) -> CostReport:
    """Returns days in their order, of everything else the most expensive first."""
    if by == "delegation":
        dearest = [_sum(bill[0], [bill]) for bill in nsmallest(DEAREST, bills, key=_rank)]
        return CostReport(by=by, since=since, items=dearest, total=_sum(None, bills))
    groups, keys_of = defaultdict[str | None, list[Bill]](list), group_keys(by)
    for bill in bills:
        for key in keys_of(bill):
            groups[key].append(bill)
    keys = sorted(groups, key=lambda key: key or "")
    if by != "day":
        keys = nsmallest(MOST_GROUPS, keys, key=lambda key: _rank_of_group(groups[key]))
    return CostReport(by=by, since=since, items=[_sum(key, groups[key]) for key in keys], total=_sum(None, bills))


def _rank(bill: Bill) -> tuple[float, int, str]:
    """The highest cost is the first, then the most tokens."""
    return -(bill[_COST] or 0), -sum([tokens or 0 for tokens in bill[5:_END_OF_TOTAL]]), bill[0]


def _rank_of_group(bills: Sequence[Bill]) -> tuple[float, int]:
    ranks = [_rank(bill) for bill in bills]
    return sum([cost for cost, _, _ in ranks]), sum([tokens for _, tokens, _ in ranks])


def _sum(key: str | None, bills: Sequence[Bill]) -> Cost:
    sums = dict[str, Any]()
    for at, name in enumerate(Usage.model_fields, 5):
        sums[name] = sum([bill[at] or 0 for bill in bills])
    unpriced = sum([bill[_COST] is None for bill in bills])
    if unpriced and not sums["cost_usd"]:
        sums |= {"cost_usd": None, "cache_saved_usd": None}
    return Cost(key=key, delegations=len(bills), unpriced=unpriced, usage=Usage(**sums))


async def cost_report(redis: Any, by: str, since: datetime | None, owner: str | None = None) -> CostReport:
    """Returns what the delegations cost that were accepted since then and whose records exist: of an owner, or all."""
    since = since.replace(tzinfo=UTC) if since and since.tzinfo is None else since
    first = first_id(since) if since else ""
    # The unfinished ones first: a run that ends in between is found twice, and not missed.
    ids = [id for id in await redis.zrange(LEASES, 0, -1) if id >= first]
    records = await fields_of_records(redis, ids, "created", MODEL, SESSION, LABELS, SPENT, OWNER)
    unfinished = {
        id: bill_of(
            id, created[:10], model, session, json.loads(labels or "{}"), Usage.model_validate_json(spent or "{}")
        )
        for id, (created, model, session, labels, spent, of) in zip(ids, records, strict=True)
        if created is not None and owner in (None, of or "")
    }
    (time, _), filed = await redis.time(), [*(await redis.hgetall(BILLS)).items()]
    if owner is not None:
        own = {*await redis.zrange(filed_key(f"owner:{owner}"), 0, -1)}
        filed = [each for each in filed if each[0] in own]

    def ended() -> Generator[Bill]:
        for start in range(0, len(filed), PAGE):
            page = filed[start : start + PAGE]  # each call of the parser holds the interpreter
            bills = from_json(f"[{','.join([text for _, text in page])}]", cache_strings="keys")
            for (id, _), bill in zip(page, bills, strict=True):
                if time < bill[0] and first <= id and id not in unfinished:
                    bill[0] = id
                    bill += [0] * (_END - len(bill))
                    yield bill

    return await to_thread(lambda: added_up([*unfinished.values(), *ended()], by, since))
