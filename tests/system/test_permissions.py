"""Many runs that wait for a person, and everything restarted while one waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deputize.orchestrator.delegations import open_service
from deputize.shared.delegation import Status
from deputize.shared.events import PermissionAnswered, PermissionRequested, RunResumed, Waiting
from deputize.shared.permission import PermissionOutcome, PermissionRequest
from deputize.shared.request import ApprovalMode
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet, open_fleet
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

SLOTS = 4
WAITING = 100
WRITE = call("write_file", path="a.txt", content="x\n")
ONCE = PermissionOutcome.PROCEED_ONCE


@pytest.fixture
async def asking(redis_process: RedisProcess, tmp_path: Path) -> AsyncIterator[Fleet]:
    own = {"lease_seconds": 2, "shutdown_seconds": 1, "permission_timeout_seconds": 200, "concurrency": SLOTS}
    async with open_fleet(redis_process.url, tmp_path / "home", **own) as fleet:
        yield fleet


async def questions(fleet: Fleet, number: int) -> list[PermissionRequest]:
    async def there() -> list[PermissionRequest]:
        found = await fleet.service.permissions()
        return found if len(found) == number else []

    return await until(there, 120)


@pytest.mark.costly
@pytest.mark.requirement("S003-003")
async def test_a_hundred_runs_that_wait_leave_the_slots_to_others(asking: Fleet, tmp_path: Path) -> None:
    await asking.start()
    model, others = script(tmp_path, [WRITE], [say("done")]), script(tmp_path, [say("done")])
    ids = [await asking.hand_over(model=model, approval_mode=ApprovalMode.ASK) for _ in range(WAITING)]
    requests = await questions(asking, WAITING)
    assert {request.delegation_id for request in requests} == {*ids}
    results = await asyncio.gather(*(asking.run(model=others) for _ in range(2 * SLOTS)))
    assert [result.status for result in results] == [Status.SUCCEEDED] * 2 * SLOTS
    for request in requests:
        await asking.service.answer_permission(request.permission_id, ONCE)
    for id in ids:
        assert (await asking.result(id)).files_modified == ["a.txt"]
    assert await asking.service.permissions() == []


@pytest.mark.long
async def test_a_request_survives_its_worker_redis_and_the_api(
    asking: Fleet, redis_process: RedisProcess, tmp_path: Path
) -> None:
    await asking.start("1")
    both = [WRITE, call("write_file", path="b.txt", content="y\n")]
    id = await asking.hand_over(model=script(tmp_path, both, [say("done")]), approval_mode=ApprovalMode.ASK)
    asked = await questions(asking, 2)
    await asking.until_event(id, "waiting")
    for name in ("2", "3", "4"):
        await asking.kill(str(int(name) - 1))
        await asking.start(name)
        await until(lambda number=int(name): waits(asking, id, number))
        assert await asking.service.permissions() == asked
    redis_process.kill()
    redis_process.start()
    async with open_service(asking.settings, redis_process.url) as restarted:
        assert await until(restarted.permissions) == asked
        await restarted.answer_permission(asked[1].permission_id, ONCE, by="ada")
        await restarted.answer_permission(asked[0].permission_id, ONCE, by="ada")
        result = await asking.result(id)
    assert (result.termination_reason, result.attempts) == ("completed", 4)
    assert result.files_modified == ["a.txt", "b.txt"]
    events = await asking.service.events(id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    kinds = PermissionRequested | PermissionAnswered | RunResumed
    found = [each.event for each in events if isinstance(each.event, kinds)]
    assert [each.type for each in found] == [
        *["permission_requested"] * 2,
        *["run_resumed"] * 3,
        *["permission_answered"] * 2,
    ]
    assert {each.by for each in found if isinstance(each, PermissionAnswered)} == {"ada"}


async def waits(fleet: Fleet, id: str, attempt: int) -> bool:
    """Whether this attempt has come as far as its wait."""
    found = [each for each in await fleet.service.events(id) if isinstance(each.event, Waiting)]
    return any(each.attempt == attempt for each in found)
