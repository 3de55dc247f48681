"""Delegations that wait for others, with real workers that are killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.events import RunStarted
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet, open_fleet

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


def after(*ids: str) -> dict[str, Any]:
    return {"after": [{"id": id} for id in ids]}


@pytest.fixture
async def fleet(redis_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """Tickets that a killed worker had taken are sent again soon."""
    async with open_fleet(redis_url, tmp_path / "home", lease_seconds=2, claim_seconds=3, shutdown_seconds=1) as fleet:
        yield fleet


@pytest.mark.long
async def test_a_graph_of_delegations_is_carried_out_although_its_workers_are_killed(
    fleet: Fleet, tmp_path: Path
) -> None:
    """Two begin, three wait for both, one for these. At the end of each of the first two its worker is killed."""
    done = script(tmp_path, [say("done")])
    holds = script(tmp_path, [call("bash", command="until [ -e go ]; do sleep 0.05; done")], [say("done")])
    first, second = await fleet.hand_over(model=done), await fleet.hand_over(model=holds)
    middle = [await fleet.hand_over(model=done, **after(first, second)) for _ in range(3)]
    last = await fleet.hand_over(model=done, **after(*middle))
    in_vain = await fleet.hand_over(model=done, **after(last, cancelled := await fleet.hand_over(**after(first))))
    await fleet.service.cancel(cancelled)
    await fleet.start("1")
    assert (await fleet.result(first)).success
    await fleet.kill("1")
    await fleet.start("2")
    await fleet.until_event(second, "run_started")
    (fleet.settings.workspaces / second / "files" / "go").touch()
    assert (await fleet.result(second)).success
    await fleet.kill("2")
    await fleet.start("3")
    results = await asyncio.gather(*map(fleet.result, (*middle, last)))
    assert {result.summary for result in results} == {"done"}
    for id in (first, *middle, last):
        started = [each for each in await fleet.service.events(id) if isinstance(each.event, RunStarted)]
        assert len(started) == 1
    ended = await fleet.result(in_vain)
    assert (ended.status, ended.attempts, ended.errors) == ("cancelled", 0, [f"{cancelled} was cancelled"])
