"""`deputize resume`: what is paused goes on when somebody asks for it."""

from __future__ import annotations

import asyncio
from typing import Any

from click.testing import CliRunner, Result

from deputize.orchestrator.cli import cli
from deputize.shared.request import DelegationRequest
from tests.orchestrator.command_line import started
from tests.orchestrator.fake_service import FakeService
from tests.waiting import until


async def deputize(url: str, *arguments: str) -> Result:
    runner = CliRunner(env={"DEPUTIZE_URL": url, "DEPUTIZE_TOKEN": None})
    return await asyncio.to_thread(runner.invoke, cli, list(arguments), catch_exceptions=False)


async def accepted(service: FakeService, **state: Any) -> str:
    id = (await service.accept(DelegationRequest(task="Count the files"))).delegation.id
    service.runs[id] = service.runs[id].model_copy(update=state)
    return id


async def test_what_is_paused_is_listed_and_shown_as_such(url: str, service: FakeService) -> None:
    id = await accepted(service, paused=True)
    assert f"{id}  paused " in (await deputize(url, "list")).stdout
    assert "status     paused\n" in (await deputize(url, "show", id)).stdout


async def test_all_that_is_paused_goes_on_and_its_results_are_printed(url: str, service: FakeService) -> None:
    other, paused = await accepted(service), await accepted(service, paused=True)
    async with started("resume", "--all", "--wait", "60", DEPUTIZE_URL=url) as command:
        await until(lambda: not service.runs[paused].paused)
        service.finish(paused, summary="Seven.")
        done = await command.done()
    assert (done.code, done.out) == (0, "Seven.\n")
    assert service.runs[other].result is None
    assert "nothing is paused\n" in (await deputize(url, "resume", "--all")).stderr


async def test_what_is_finished_cannot_be_resumed(url: str, service: FakeService) -> None:
    id = await accepted(service)
    service.finish(id)
    done = await deputize(url, "resume", id)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{id} is finished, so it cannot be resumed" in done.stderr
    assert (await deputize(url, "resume")).exit_code == 2
