"""What `deputize doctor` finds: one row each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

State = Literal["✓", "!", "✗"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: ✓ works, ! works with a limitation, ✗ does not work. ``mend`` is the remedy."""

    state: State
    name: str
    said: str
    mend: str = ""

    def to_dict(self) -> dict[str, str]:
        words = {"✓": "ok", "!": "warning", "✗": "broken"}
        return {**asdict(self), "state": words[self.state]}
