"""A delegation whose kit is one foreign tool, carried out by the real loop, and what was seen of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deputize.shared.bus import follow
from deputize.shared.delegation import Step, ToolAgentResult
from deputize.shared.events import StepCompleted, StepUpdated
from deputize.shared.request import DelegationRequest
from deputize.worker.task import carry_out
from deputize.worker.tools.base import AnyTool
from tests.runs.bench import call, open_bench, say, script
from tests.waiting import until


@dataclass
class Play:
    """How it went. ``updates`` are the live news of all steps: (title, fields)."""

    result: ToolAgentResult
    steps: list[Step] = field(default_factory=list[Step])
    updates: list[tuple[str | None, dict[str, Any]]] = field(default_factory=list[tuple[str | None, dict[str, Any]]])


class Theatre:
    """Carries out delegations that use the given tools."""

    def __init__(self, redis_url: str, folder: Path) -> None:
        self._redis_url = redis_url
        self._folder = folder

    async def play(self, tools: Sequence[AnyTool], *calls: dict[str, Any], **fields: Any) -> Play:
        """One turn a call (``arguments`` of the first tool, or a whole ``call``), then the report."""
        asked = [each if "call" in each else call(tools[0].name, **each) for each in calls]
        model = script(self._folder, *([each] for each in asked), [say("Done.")])
        request = DelegationRequest(task="do it", model=model, tools=[tool.name for tool in tools], **fields)
        async with open_bench(self._redis_url, self._folder / "home", offered=tools) as bench:
            id = await bench.accept(request)
            working = asyncio.create_task(carry_out(bench.services, id))
            seen = [envelope.event async for envelope in follow(bench.bus, bench.store, id)]
            await working
            play = Play(await bench.result(id))
        play.steps = [event.step for event in seen if isinstance(event, StepCompleted)]
        play.updates = [(event.title, event.metadata) for event in seen if isinstance(event, StepUpdated)]
        return play

    async def cancelled(self, tool: AnyTool, begun: asyncio.Event, **arguments: Any) -> ToolAgentResult:
        """One call, cancelled as soon as it reports that it has ``begun``."""
        model = script(self._folder, [call(tool.name, **arguments)], [say("Done.")])
        async with open_bench(self._redis_url, self._folder / "home", offered=[tool]) as bench:
            id = await bench.accept(DelegationRequest(task="do it", model=model, tools=[tool.name]))
            working = asyncio.create_task(carry_out(bench.services, id))
            await until(begun.is_set)
            await bench.store.cancel(id)
            await working
            return await bench.result(id)
