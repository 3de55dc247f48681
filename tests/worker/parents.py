"""Runs that hand over work, and what their tool calls were answered."""

from __future__ import annotations

from typing import Any

from tests.runs.bench import Bench, call
from tests.runs.nesting import begin

WRITE = call("write_file", path="a.txt", content="one\n")
HOLD = call("bash", command="echo begun > held.txt; exec sleep 1000")
PRICE = {"input": 1.0, "output": 5.0}
SPENT = {"input": 1000, "output": 200}
COST = (1000 * 1.0 + 200 * 5.0) / 1e6


async def run(bench: Bench, **fields: Any) -> str:
    """Carries out a parent to its end. Returns its id."""
    id, running = await begin(bench, **fields)
    await running
    return id
