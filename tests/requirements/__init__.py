"""The requirements as data: ``requirements.json``, and what a test marked ``requirement("S000-037")`` proves of it.

``issue`` names who meets a line: A one delegation end to end, B nothing lost and nothing twice, C the whole tool
system, D people and permissions, E the other faces (web, MCP server). Where a line carries a conflict, the
resolution under ``conflicts`` is what the product does, and the statement is the record of one design.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Requirement:
    id: str
    kind: str
    """B behaviour, D data, N number, E message, R design rule, P a line of this project's own."""
    statement: str
    conflicts: tuple[str, ...]
    issue: str


@cache
def _manifest() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("requirements.json").read_text("utf-8"))


@cache
def requirements() -> dict[str, Requirement]:
    rows = _manifest()["requirements"]
    return {row["id"]: Requirement(**row | {"conflicts": tuple(row["conflicts"])}) for row in rows}


def conflicts() -> dict[str, str]:
    """Where two designs differ: id → what each one states and what the product does."""
    return _manifest()["conflicts"]
