"""Commands against a service that a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from click.testing import CliRunner, Result

from deputize.orchestrator.cli import cli
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


async def called(url: str, *arguments: str) -> Result:
    """Beside the service's own loop, in this process: most commands are over in a moment."""
    runner = CliRunner(env={"DEPUTIZE_URL": url, "DEPUTIZE_TOKEN": None})
    return await asyncio.to_thread(runner.invoke, cli, list(arguments), catch_exceptions=False)


@asynccontextmanager
async def finished_by_itself(
    service: FakeService, finish: Callable[[FakeService, str], Any] = FakeService.finish
) -> AsyncIterator[None]:
    """Whatever is followed has its end."""

    async def work() -> None:
        while True:
            await until(lambda: service.following, 60)
            for id in [id for id, run in service.runs.items() if not run.status.finished]:
                finish(service, id)
            await asyncio.sleep(0)

    working = asyncio.create_task(work())
    try:
        yield
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
