"""What `deputize doctor` finds: one row each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

State = Literal["✓", "!", "✗"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: ✓ works, ! works with a limitation, ✗ does not work. ``remedy`` is what to do about it."""

    state: State
    name: str
    detail: str
    remedy: str = ""

    def to_dict(self) -> dict[str, str]:
        words = {"✓": "ok", "!": "warning", "✗": "broken"}
        return {**asdict(self), "state": words[self.state]}
