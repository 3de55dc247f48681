"""`deputize resume`: what is paused goes on when somebody asks for it."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deputize.orchestrator.cli import cli
from deputize.orchestrator.cli.connect import Service, note_before_work
from deputize.orchestrator.client import Client
from deputize.shared.request import DelegationRequest
from tests.orchestrator.command_line import started
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.waiting import until


async def deputize(url: str, *arguments: str) -> Result:
    runner = CliRunner(env={"DEPUTIZE_URL": url, "DEPUTIZE_TOKEN": None})
    return await asyncio.to_thread(runner.invoke, cli, list(arguments), catch_exceptions=False)


async def accepted(service: FakeService, **state: Any) -> str:
    id = (await service.create(DelegationRequest(task="Count the files"))).delegation.id
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


async def test_what_its_own_stack_pauses_while_it_starts_goes_on(url: str, service: FakeService) -> None:
    id = await accepted(service)
    async with started("resume", id, DEPUTIZE_URL=url) as command:
        await until(lambda: service.following)
        service.runs[id] = service.runs[id].model_copy(update={"paused": True})
        await until(lambda: not service.runs[id].paused, 30)
        service.finish(id, summary="Seven.")
        done = await command.done()
    assert (done.code, done.out) == (0, "Seven.\n")


async def test_a_batch_that_is_resumed_goes_on_with_what_is_paused(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    service.fleet = [worker_card()]
    (tmp_path / "tasks.txt").write_text("one\n")
    given = ("batch", "tasks.txt", "--out", "out.jsonl")
    async with started(*given, "--wait", "0.5", DEPUTIZE_URL=url, cwd=tmp_path) as command:
        await command.done()
    (id,) = service.runs
    service.runs[id] = service.runs[id].model_copy(update={"paused": True})
    async with started(*given, "--resume", DEPUTIZE_URL=url, cwd=tmp_path) as command:
        await until(lambda: not service.runs[id].paused, 30)
        service.finish(id)
        assert (await command.done()).code == 0


async def test_watch_ends_where_what_it_watches_is_paused_and_follows_the_others(
    url: str, service: FakeService
) -> None:
    paused, other = await accepted(service, paused=True), await accepted(service)
    async with started("watch", paused, other, DEPUTIZE_URL=url) as command:
        await until(lambda: b"is paused" in command.err, 30)
        service.finish(other, summary="Done.")
        done = await command.done()
    assert (done.code, done.out) == (3, "Done.\n")
    assert f"`deputize resume {paused}` goes on with it" in done.err


@pytest.mark.parametrize("asks", [True, False])
async def test_only_run_asks_on_a_terminal_whether_to_go_on_with_what_is_paused(
    asks: bool, url: str, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await accepted(service, paused=True)
    noted: list[str] = []
    keys, terminal = os.openpty()
    os.write(keys, b"y\n")
    with os.fdopen(terminal, "r+b", buffering=0) as raw, io.TextIOWrapper(raw, write_through=True) as both:
        for name in ("stdin", "stderr"):
            monkeypatch.setattr(sys, name, both)
        async with Client(url) as client:
            await note_before_work(Service(client, own=True), [], noted.append, asks=asks)
        monkeypatch.undo()
    os.close(keys)
    assert service.runs[id].paused is not asks
    assert noted[0] == f"1 delegation from before is paused: {id}"
    assert [line for line in noted if "deputize resume" in line] == noted[1 : 1 if asks else 2]
