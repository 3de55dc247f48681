"""The caps on money, by the windows of the settings and of the tokens file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .spend import BILLIONTHS

if TYPE_CHECKING:
    from ..settings import SpendSettings, SpendWindows

WINDOWS = {"daily_usd": 1, "weekly_usd": 7, "four_weeks_usd": 28, "total_usd": 0}
"""The days of each window, today (UTC) included; 0: all time."""
EVERYTHING = "*"
"""The counter of all delegations; those of labels are ``KEY:VALUE``, those of owners ``@OWNER``."""
_IN_WORDS = {None: "", 0: " (US dollars in all)", 1: " (US dollars a day)"}


@dataclass(frozen=True, slots=True)
class Cap:
    """US dollars in a window of ``days``. ``name`` is the setting, ``counter`` what counts for it."""

    name: str
    counter: str
    usd: float
    days: int | None = 1
    """0: all time. None: a delegation's own limit, or that of one that it is nested in."""

    @property
    def limit(self) -> str:
        """The name with the unit."""
        return self.name + _IN_WORDS.get(self.days, f" (US dollars in {self.days} days)")

    def to_dict(self) -> dict[str, Any]:
        """Returns it as ``spend.lua`` reads it."""
        return {"name": self.name, "counter": self.counter, "days": self.days, "most": round(self.usd * BILLIONTHS)}

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Cap:
        return cls(given["name"], given["counter"], given["most"] / BILLIONTHS, given.get("days"))


def caps_in(windows: SpendWindows, counter: str, name: str = "{}") -> list[Cap]:
    """Returns a cap for each window that has one; in ``name`` braces stand for the window's name."""
    found = [(name.format(window), getattr(windows, window), days) for window, days in WINDOWS.items()]
    return [Cap(name, counter, usd, days) for name, usd, days in found if usd is not None]


def caps_of(spend: SpendSettings, labels: Mapping[str, str]) -> list[Cap]:
    """Returns the caps that hold for a delegation. Those of a label's value take precedence over those of its key."""
    caps = caps_in(spend, EVERYTHING, "spend.{}")
    for key, value in labels.items():
        counter = f"{key}:{value}"
        if name := next((name for name in (counter, key) if name in spend.per_label), None):
            of_label = caps_in(spend.per_label[name], counter)
            caps += [Cap(f"spend.per_label {name} {cap.name}", counter, cap.usd, cap.days) for cap in of_label]
    return caps


def caps_of_owner(windows: SpendWindows, owner: str) -> list[Cap]:
    return caps_in(windows, f"@{owner}", f"{{}} of the owner {owner}")
