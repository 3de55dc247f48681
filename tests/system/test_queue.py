"""Owners take turns at the places of real workers, and no kill of a worker leaves anything in the queue."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deputize.orchestrator.delegations import Delegations
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import WAITING_RUNS
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet, open_fleet
from tests.system.crashing import Counting
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

COUNTING_WORKER = "tests.system.counting_worker"


async def submit(service: Delegations, owner: str, count: int, model: str, **fields: object) -> list[str]:
    requests = [DelegationRequest.model_validate({"task": "do it", "model": model} | fields) for _ in range(count)]
    return [each.id for each in await service.of(owner).create_many(requests)]


async def starts(fleet: Fleet, ids: list[str]) -> list[str]:
    """Those that have started, in their order."""
    found = [await fleet.service.get(id) for id in ids]
    begun = [(each.started_at, each.id) for each in found if each.started_at]
    return [id for _, id in sorted(begun)]


async def test_five_runs_begin_within_their_share_beside_two_hundred_at_a_single_place(
    fleet: Fleet, tmp_path: Path
) -> None:
    model = script(tmp_path, [say("done")])
    many, few = await submit(fleet.service, "ann", 200, model), await submit(fleet.service, "bob", 5, model)
    await fleet.start("1", "--concurrency", "1")
    await asyncio.gather(*map(fleet.result, few))
    begun = await starts(fleet, [*many, *few])
    assert {*begun[:10]} == {*many[:5], *few}
    await fleet.kill("1")


@pytest.mark.costly
async def test_each_run_is_carried_out_once_whenever_workers_are_killed(redis_url: str, tmp_path: Path) -> None:
    settings = {"lease_seconds": 2, "claim_seconds": 3, "shutdown_seconds": 1, "concurrency": 2}
    async with open_fleet(redis_url, tmp_path / "home", **settings) as fleet, Counting.open() as counting:
        ids = list[str]()
        for owner, count in {"ann": 12, "bob": 3, "cleo": 3}.items():
            for number in range(count):
                url = f"http://127.0.0.1:{counting.port}/{owner}-{number}"
                turns = [call("count", url=url)], {"blocks": [say("done")], "delay": 0.1}
                ids += await submit(fleet.service, owner, 1, script(tmp_path, *turns), tools=["*"])
        for number in range(3):  # the fourth one is not killed
            _, seen = await fleet.start(f"{number}", program=COUNTING_WORKER), len(counting.seen)
            await until(lambda seen=seen: len(counting.seen) >= seen + 2)
            await fleet.kill(f"{number}")
        await fleet.start("3", program=COUNTING_WORKER)
        results = await asyncio.gather(*map(fleet.result, ids))
        assert {result.termination_reason for result in results} == {"completed"}
        assert {*counting.seen.values()} == {1}
        assert len(ids) - len(counting.seen) <= 3 * 2  # begun and not sent: in doubt, and not tried again
        assert [key async for key in fleet.service.store.redis.scan_iter(f"{WAITING_RUNS}*")] == []
