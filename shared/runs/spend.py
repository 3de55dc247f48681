"""Money: what a run spends is counted in Redis, where ``spend.lua`` reserves it before each model call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from ..connection import Script
from ..wire import now
from .disk import RECORD_PARTS
from .keys import OWNER_CAPS, RESERVED_MONEY, SPENT_MONEY, record_key, spend_key

SPEND = Script("spend")
BILLIONTHS = 1_000_000_000
_WIDEST = 28
"""Days of the widest window."""
DAY_SECONDS = (_WIDEST + 2) * 24 * 3600
"""How long a day's counters are kept."""
_DAY_ONE = 719_163
"""The ordinal of 1 January 1970."""


def dates(today: datetime, days: int) -> list[str]:
    """Returns the dates that a window of so many days may have, the latest first: tomorrow, where Redis is ahead."""
    return [f"{today - timedelta(days=ago):%Y-%m-%d}" for ago in range(-1, days + 1)]


def spend_call(
    id: str,
    fence: str,
    total: float,
    wanted: float,
    least: float,
    caps: Sequence[Mapping[str, Any]],
    *,
    number: int = 0,
    cut: bool = False,
) -> tuple[list[str], dict[str, Any]]:
    """Returns keys and arguments of the script, for amounts in US dollars.

    ``caps`` are those of ``Cap.to_dict``, ``number`` is that of the reservation, ``cut`` whether its call was cut off.
    """
    today = now()
    return [record_key(id), RESERVED_MONEY, SPENT_MONEY, OWNER_CAPS], {
        "id": id,
        "fence": fence,
        "total": round(total * BILLIONTHS),
        "wanted": round(wanted * BILLIONTHS),
        "least": round(least * BILLIONTHS),
        "number": number,
        "cut": cut,
        "counters": [*dict.fromkeys(cap["counter"] for cap in caps)],
        "caps": caps,
        "day_head": spend_key(""),
        "days": dates(today, _WIDEST),
        "first_day": today.toordinal() - _DAY_ONE + 1,
        "seconds": DAY_SECONDS,
        **RECORD_PARTS,
    }
