"""Runs that hand over work, and what their tool calls were answered."""

from __future__ import annotations

import json
from typing import Any

from deputize.shared.delegation import Step
from deputize.shared.events import StepCompleted
from deputize.shared.runs.keys import history_key
from tests.nesting import begin
from tests.running import Bench, call

WRITE = call("write_file", path="a.txt", content="one\n")
HOLD = call("bash", command="echo begun > held.txt; exec sleep 1000")
PRICE = {"input": 1.0, "output": 5.0}
SPENT = {"input": 1000, "output": 200}
COST = (1000 * 1.0 + 200 * 5.0) / 1e6


async def run(bench: Bench, **fields: Any) -> str:
    """Carries out a parent to its end, and gives its id."""
    id, running = await begin(bench, **fields)
    await running
    return id


async def answers(bench: Bench, id: str) -> list[str]:
    """What the tool calls of a run were answered, in order."""
    messages = [json.loads(entry) for entry in await bench.store.redis.lrange(history_key(id), 0, -1)]
    blocks = [block for message in messages if message["role"] == "user" for block in message["content"]]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


async def steps(bench: Bench, id: str) -> list[Step]:
    return [e.event.step for e in await bench.events(id) if isinstance(e.event, StepCompleted)]
