"""14. The loop alone: the core of a worker in one process, with a model, a tool and a record in memory.

No Redis, no Celery, no sandbox: what the loop needs of them are protocols (``worker/contracts.py`` and
``worker/core/run_contracts.py``), and ``alone.py`` has the plainest objects for them.
"""

from __future__ import annotations

import json
from pathlib import Path

from deputize.shared.settings import Settings
from deputize.worker.models import open_model
from deputize.worker.tools.base import Kind, Params, Tool, ToolContext, ToolResult
from tests.fundamentals.alone import loop_of
from tests.runs.bench import call, say, script
from tests.runs.memory_record import MemoryRecord


class Numbers(Params):
    a: int
    b: int


class Add(Tool[Numbers]):
    """Adds two numbers."""

    name = "add"
    kind = Kind.THINK
    params = Numbers

    async def run(self, ctx: ToolContext, params: Numbers) -> ToolResult:
        return ToolResult(str(params.a + params.b))


async def test_the_loop_works_with_a_model_a_tool_and_a_record_in_memory(tmp_path: Path) -> None:
    model = open_model(script(tmp_path, [call("add", a=2, b=3)], [say("It is {{result}}.")]), Settings())
    record = MemoryRecord()
    loop = loop_of("What is 2 + 3?", model, [Add()], record)
    await loop.work()
    await loop.run.emit.settled()
    assert loop.conversation.last_words == "It is 5."
    assert [json.loads(event)["type"] for event in record.events] == [
        "turn_started",
        "replied",
        "step_started",
        "step_completed",
        "turn_started",
        "replied",
    ]


async def test_a_loop_that_was_lost_is_gone_on_with_where_its_record_ends(tmp_path: Path) -> None:
    model = open_model(script(tmp_path, [call("add", a=2, b=3)], [say("It is {{result}}.")]), Settings())
    record = MemoryRecord()
    lost = loop_of("What is 2 + 3?", model, [Add()], record)
    await lost.turn()  # it has the reply, and no result of its call
    await lost.run.emit.settled()
    loop = loop_of("What is 2 + 3?", model, [Add()], record)
    await loop.work()
    assert (loop.conversation.last_words, loop.run.meter.turns) == ("It is 5.", 2)
