"""What is published of models: what they cost (``prices.json``, with dates), and how long a conversation they take."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from worker.models.base import Price

_KNOWN = (
    (re.compile(r"claude-(fable|mythos|opus|sonnet|haiku)-5(-|$)"), 1_000_000),
    (re.compile(r"claude-"), 200_000),
)
UNKNOWN = 128_000
"""For models whose window nobody has told us: too low a guess costs a summary, too high a one a refused call."""


def window_of(model: str) -> int:
    """The model's window in tokens, replies included."""
    return next((tokens for name, tokens in _KNOWN if name.match(model)), UNKNOWN)


def price_of(model: str, day: date | None = None) -> Price | None:
    """The price that holds on a day (default: today, UTC), or None. A dated name has its model's price."""
    return _price_on(day or datetime.now(UTC).date(), model)


@lru_cache(maxsize=64)
def _price_on(day: date, model: str) -> Price | None:
    dated = re.fullmatch(r"(.+)-\d{8}", model)
    rows = _table().get(dated[1] if dated else model, [])
    current = [row for row in rows if date.fromisoformat(row["since"]) <= day]
    return _price(max(current, key=lambda row: row["since"])) if current else None


@cache
def _table() -> dict[str, list[dict[str, Any]]]:
    return json.loads(files(__package__ or "").joinpath("prices.json").read_text("utf-8"))["models"]


def _price(row: dict[str, Any]) -> Price:
    return Price(
        input=row["input"],
        output=row["output"],
        cache_read=row["cacheRead"],
        cache_write=row["cacheWrite"],
        band=row.get("band"),
        above=_price(row["above"]) if "above" in row else None,
    )
