"""A measured number: its samples, its target, and how both are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Number:
    """``samples`` holds one value a run. Without a target it is shown because it explains another number."""

    name: str
    unit: str
    samples: Sequence[float]
    at_most: float | None = None
    at_least: float | None = None

    @property
    def median(self) -> float:
        return median(self.samples)

    @property
    def target(self) -> str:
        if self.at_most is not None:
            return f"≤ {shown(self.at_most)}"
        return "" if self.at_least is None else f"≥ {shown(self.at_least)}"

    @property
    def verdict(self) -> str:
        """How the median compares with the target; "" where there is none."""
        if not self.target:
            return ""
        low, high = self.at_least, self.at_most
        met = (low is None or self.median >= low) and (high is None or self.median <= high)
        return "met" if met else "missed"

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "median": self.median,
            "min": min(self.samples),
            "max": max(self.samples),
            "samples": list(self.samples),
            "target": self.target,
            "verdict": self.verdict,
        }


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that at least so many percent of all values do not exceed."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


def shown(value: float) -> str:
    """Three digits that matter, and no more."""
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(numbers: Sequence[Number]) -> str:
    """A Markdown table, as the README takes it."""
    rows = [("number", "median", "min", "max", "unit", "target", "")]
    rows += [
        (
            each.name,
            shown(each.median),
            shown(min(each.samples)),
            shown(max(each.samples)),
            each.unit,
            each.target,
            each.verdict,
        )
        for each in numbers
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
