"""`deputize continue` and `deputize retry`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from deputize.shared.delegation import Delegation
from deputize.shared.request import DelegationRequest, DirectoryWorkspace, Limits
from tests.orchestrator.command_line import Done, deputize
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served
from tests.preloaded import COMMAND as PROGRAM
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
