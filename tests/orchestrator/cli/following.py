"""`deputize run` against a service that a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.orchestrator.command_line import Done, started
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.waiting import until


async def run(
    url: str, service: FakeService, *arguments: str, then: Callable[[str], Any] | None = None, **more: Any
) -> Done:
    """The command, and what happens to its delegation once it is followed."""
    service.fleet = service.fleet or [worker_card()]
    async with started("run", *arguments, DEPUTIZE_URL=url, **more) as command:
        await until(lambda: service.following, 60)
        ended = (then or service.finish)(next(reversed(service.runs)))
        if asyncio.iscoroutine(ended):
            await ended
        return await command.done()
