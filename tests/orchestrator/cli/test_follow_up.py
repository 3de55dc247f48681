"""`deputize continue`, `retry` and `resume`."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.cli.connect import Service, note_before_work
from deputize.orchestrator.client import Client
from deputize.shared.delegation import Delegation
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest, DirectoryWorkspace
from tests.orchestrator.cli.following import called
from tests.orchestrator.command_line import Done, deputize, started
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.orchestrator.serving import served
from tests.processes.preloaded import COMMAND as PROGRAM
from tests.waiting import until


async def followed_up(service: FakeService, *arguments: str, **fields: Any) -> tuple[Done, Delegation]:
    """Runs the command, and ends the delegation that it submits."""
    known = {*service.runs}
    async with served(service) as url:
        running = asyncio.create_task(deputize(*arguments, DEPUTIZE_URL=url, DEPUTIZE_TOKEN="t"))
        new = await until(lambda: {*service.runs} - known or running.done())
        if isinstance(new, set):
            service.finish(*new, summary="Done again.", **fields)
        return await running, service.runs[next(iter({*service.runs} - known))]


async def finished(service: FakeService) -> str:
    request = DelegationRequest(task="the first", limits=Limits(max_turns=9), idempotency_key="k")
    id = (await service.create(request)).delegation.id
    service.finish(id)
    return id


async def test_continue_submits_a_new_one_and_waits_for_its_result() -> None:
    service = FakeService()
    id = await finished(service)
    done, new = await followed_up(service, "continue", "@last", "now also this", "--max-tool-calls", "3")
    assert (done.code, done.out.strip()) == (0, "Done again.")
    assert new.id in done.err
    assert (new.request.task, new.request.continues) == ("now also this", id)
    assert (new.request.limits.max_turns, new.request.limits.max_tool_calls) == (9, 3)


async def test_retry_submits_the_same_request_again() -> None:
    service = FakeService()
    id = await finished(service)
    done, new = await followed_up(service, "retry", id[-6:], "--json")
    assert (done.code, json.loads(done.out)["delegationId"]) == (0, new.id)
    assert (new.request.task, new.request.retry_of, new.request.idempotency_key) == ("the first", id, None)


async def test_one_that_is_not_finished_is_refused_with_what_to_do() -> None:
    service = FakeService()
    id = (await service.create(DelegationRequest(task="waits"))).delegation.id
    async with served(service) as url:
        for arguments in (["continue", id, "x"], ["retry", id]):
            done = await deputize(*arguments, DEPUTIZE_URL=url, DEPUTIZE_TOKEN="t")
            assert done.code == 2
            assert f"deputize watch {id}" in done.err


async def test_continue_and_retry_name_what_takes_their_changes_over(tmp_path: Path) -> None:
    service = FakeService()
    for arguments in (["continue", "@last", "more"], ["retry", "@last"]):
        workspace = DirectoryWorkspace(kind="directory", path=str(tmp_path))
        id = (await service.create(DelegationRequest(task="x", workspace=workspace))).delegation.id
        service.finish(id)
        done, new = await followed_up(service, *arguments, file_changes=[{"path": "a", "change": "modified"}])
        assert f"to take this over: {PROGRAM} apply {new.id}\n" in done.err


async def accepted(service: FakeService, **state: Any) -> str:
    id = (await service.create(DelegationRequest(task="Count the files"))).delegation.id
    service.runs[id] = service.runs[id].model_copy(update=state)
    return id


async def test_what_is_paused_is_listed_and_shown_as_such(url: str, service: FakeService) -> None:
    id = await accepted(service, paused=True)
    assert f"{id}  paused " in (await called(url, "list")).stdout
    assert "status     paused\n" in (await called(url, "show", id)).stdout


async def test_all_that_is_paused_goes_on_and_its_results_are_printed(url: str, service: FakeService) -> None:
    other, paused = await accepted(service), await accepted(service, paused=True)
    async with started("resume", "--all", "--wait", "60", DEPUTIZE_URL=url) as command:
        await until(lambda: not service.runs[paused].paused)
        service.finish(paused, summary="Seven.")
        done = await command.done()
    assert (done.code, done.out) == (0, "Seven.\n")
    assert service.runs[other].result is None
    for every in ([], ["--all"]):
        assert "nothing is paused\n" in (await called(url, "resume", *every)).stderr


async def test_what_is_finished_cannot_be_resumed(url: str, service: FakeService) -> None:
    id = await accepted(service)
    service.finish(id)
    done = await called(url, "resume", id)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{id} is finished, so it cannot be resumed" in done.stderr


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
    assert noted[0] == f"1 delegation from before is paused: {service.runs[id].request.title} (…{id[-6:]})"
    assert [line for line in noted if "deputize resume" in line] == noted[1 : 1 if asks else 2]
    assert asks or noted[1] == f"`deputize resume {id}` goes on with it, `deputize cancel {id}` ends it"


async def test_of_several_that_are_paused_only_these_are_named_to_be_cancelled(service: FakeService, url: str) -> None:
    for _ in range(2):
        await accepted(service, paused=True)
    noted: list[str] = []
    async with Client(url) as client:
        await note_before_work(Service(client, own=True), [], noted.append)
    assert noted[1] == "`deputize resume --all` goes on with them, `deputize cancel ID…` ends them"
