"""What delegations cost, from their records: grouped by day, model, session or label."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from ..delegation import Usage
from ..ids import first_id
from ..wire import Timestamp, Wire
from .keys import INDEX, record_key

LABELS, SESSION, MODEL, SPENT = "labels", "session", "model", "spent"
"""Fields of the record that a report needs: requests and results may be megabytes."""
GROUPS = "day, model, session, label or label:KEY"
_GROUP = re.compile(r"day|model|session|label(:.+)?", re.DOTALL)
_PAGE = 500


class Cost(Wire):
    """What a group of delegations cost. Each counts what it spent itself: a parent's does not include its children's.

    ``key`` is null for those without that label or session. ``usage.costUsd`` is the sum of the known costs, null where
    none is known, and so is ``usage.cacheSavedUsd``; ``unpriced`` is the number of delegations whose cost is not known.
    """

    key: str | None
    delegations: int = 0
    unpriced: int = 0
    usage: Usage = Usage()


class CostReport(Wire):
    by: str
    since: Timestamp | None = None
    items: list[Cost] = Field(default_factory=list[Cost])
    total: Cost = Cost(key=None)


@dataclass(frozen=True, slots=True)
class Bill:
    """What one delegation spent itself."""

    day: str
    model: str | None
    session: str | None
    labels: Mapping[str, str]
    usage: Usage


async def fields_of_records(redis: Any, ids: Sequence[str], *names: str) -> list[list[Any]]:
    """Returns these fields of the record of each delegation, None for those that are not set, in one round trip."""
    async with redis.pipeline(transaction=False) as pipeline:
        for id in ids:
            pipeline.hmget(record_key(id), names)
        return await pipeline.execute()


def check_group(by: str) -> str:
    """Returns ``by``. Raises ValueError where delegations cannot be grouped by it."""
    if not _GROUP.fullmatch(by):
        raise ValueError(f"{by[:100]!r} is not one of {GROUPS}")
    return by


def group_keys(by: str) -> Callable[[Bill], Iterable[str | None]]:
    """Returns a function that returns the groups of a bill; with ``label`` a delegation is in one for each label."""
    if by == "label":
        return lambda bill: [f"{key}:{value}" for key, value in bill.labels.items()] or [None]
    if by.startswith("label:"):
        label = by.removeprefix("label:")
        return lambda bill: [bill.labels.get(label)]
    return lambda bill: [getattr(bill, by)]


@dataclass(slots=True)
class CostTable:
    """Adds up bills."""

    by: str
    since: datetime | None = None
    _rows: dict[str | None, Cost] = field(default_factory=dict[str | None, Cost])
    _total: Cost = field(default_factory=lambda: Cost(key=None))

    def add(self, bill: Bill) -> None:
        for key in group_keys(self.by)(bill):
            self._rows[key] = _with(self._rows.get(key, Cost(key=key)), bill.usage)
        self._total = _with(self._total, bill.usage)

    def report(self) -> CostReport:
        """Returns days in their order, everything else with the highest cost first."""
        rows = sorted(self._rows.values(), key=lambda row: row.key or "")
        if self.by != "day":
            rows.sort(key=lambda row: (row.usage.cost_usd or 0, row.usage.total), reverse=True)
        return CostReport(by=self.by, since=self.since, items=list(map(_shown, rows)), total=_shown(self._total))


def _with(row: Cost, usage: Usage) -> Cost:
    money = {"cost_usd": usage.cost_usd or 0.0, "cache_saved_usd": usage.cache_saved_usd or 0.0}
    return Cost(
        key=row.key,
        delegations=row.delegations + 1,
        unpriced=row.unpriced + (usage.cost_usd is None),
        usage=row.usage + usage.model_copy(update=money),
    )


def _shown(row: Cost) -> Cost:
    if row.unpriced and not row.usage.cost_usd:
        unknown = {"cost_usd": None, "cache_saved_usd": None}
        return row.model_copy(update={"usage": row.usage.model_copy(update=unknown)})
    return row


async def cost_report(redis: Any, by: str, since: datetime | None) -> CostReport:
    """Returns what the delegations cost that were accepted since then and whose records exist."""
    since = since.replace(tzinfo=UTC) if since and since.tzinfo is None else since
    table = CostTable(by, since)
    async for bill in _bills(redis, since):
        table.add(bill)
    return table.report()


async def _bills(redis: Any, since: datetime | None) -> AsyncGenerator[Bill]:
    top, bottom = "+", f"[{first_id(since)}" if since else "-"
    while ids := await redis.zrevrangebylex(INDEX, top, bottom, 0, _PAGE):
        top = f"({ids[-1]}"
        records = await fields_of_records(redis, ids, "created", MODEL, SESSION, LABELS, SPENT)
        for created, model, session, labels, spent in records:
            if created is not None:
                usage = Usage.model_validate_json(spent) if spent else Usage()
                yield Bill(created[:10], model or None, session or None, json.loads(labels or "{}"), usage)
