"""Requests of children reach whoever follows their parents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deputize.orchestrator.delegations import open_service
from deputize.shared.delegation import Status
from deputize.shared.events import PermissionAnswered, PermissionRequested
from tests.asking import WRITE, answered, asking_bench, begun, questions, until_status
from tests.nesting import by_task, carrying_out, delegate
from tests.running import Bench, say
from tests.waiting import until


def two_levels(folder: Path) -> str:
    further = {"tools": ["call_subagent", "write_file"]}
    return by_task(
        folder,
        parent=[[delegate("middle", **further)], [say("ok")]],
        middle=[[delegate("lowest")], [say("ok")]],
        lowest=[[WRITE], [say("ok")]],
    )


async def of_permissions(bench: Bench, id: str) -> list[Any]:
    return await bench.seen(id, PermissionRequested, PermissionAnswered)


async def test_a_request_and_its_answer_are_events_of_all_runs_above(asking: Bench, tmp_path: Path) -> None:
    async with carrying_out(asking), open_service(asking.settings, asking.settings.redis_url or "") as service:
        id, run = await begun(asking, two_levels(tmp_path), task="parent", tools=["*", "call_subagent"])
        (request,) = await questions(asking)
        assert (len(request.path), request.path[0]) == (3, id)
        for above in request.path:
            await until(lambda above=above: of_permissions(asking, above))
            await until_status(asking, above, Status.WAITING)
            assert (await service.get(above)).pending_permissions == [request.permission_id]
            assert await service.permissions(above) == [request]
        listed = {each.id: each.pending_permissions for each in (await service.list()).items}
        assert listed == {each: [request.permission_id] for each in request.path}
        await answered(asking, request, "proceed_once")
        await run
        for above in request.path:
            asked, report = await of_permissions(asking, above)
            assert (asked.path, asked.step.title, asked.permission_id) == (
                request.path,
                "write a.txt",
                request.permission_id,
            )
            assert (report.path, report.outcome, report.by) == (request.path, "proceed_once", "ada")
            assert (await service.get(above)).pending_permissions == []


async def test_the_time_of_a_parent_stands_still_while_a_child_waits(redis_url: str, tmp_path: Path) -> None:
    async with asking_bench(redis_url, tmp_path / "home", permission_timeout_seconds=2.5) as bench:
        model = by_task(tmp_path, parent=[[delegate("child")], [say("ok")]], child=[[WRITE], [say("ok")]])
        async with carrying_out(bench):
            fields = {"task": "parent", "tools": ["*", "call_subagent"], "limits": {"timeout_seconds": 2}}
            id, run = await begun(bench, model, **fields)
            await run
        result = await bench.result(id)
    assert (result.termination_reason, result.execution_time_ms < 2000) == ("completed", True)


async def test_a_parent_that_is_cancelled_ends_the_wait_of_its_child(asking: Bench, tmp_path: Path) -> None:
    async with carrying_out(asking):
        id, run = await begun(asking, two_levels(tmp_path), task="parent", tools=["*", "call_subagent"])
        (request,) = await questions(asking)
        await asking.store.cancel(id)
        await run
        await until_status(asking, request.delegation_id, Status.CANCELLED)
    assert (await asking.result(id)).termination_reason == "cancelled"
    assert await asking.store.redis.exists("deputize:permissions") == 0
