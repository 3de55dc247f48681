"""Runs that are made to harm their worker, and one that is not: it hardly notices."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet, open_fleet
from tests.system.hostile_requests import hostile, servers

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(240), pytest.mark.requirement("P-03")]
PACE = 0.5
"""Seconds that the model takes for each turn of the honest run."""


async def honest(fleet: Fleet, folder: Path) -> float:
    """Seconds that an ordinary piece of work takes. Its tools are named, so that it starts no MCP server."""
    steps = [
        call("write_file", path="a.py", content="print('one')\n"),
        call("bash", command="python3 a.py"),
        call("edit_file", path="a.py", old_string="one", new_string="two"),
        call("grep", pattern="two"),
        call("read_file", path="a.py"),
    ]
    model = script(folder, *({"blocks": [step], "delay": PACE} for step in steps), [say("done")])
    begun = time.monotonic()
    id = await fleet.hand_over(model=model, tools=[step["call"] for step in steps])
    result = await fleet.result(id, 60)
    taken = time.monotonic() - begun
    assert (result.termination_reason, result.attempts, result.errors) == ("completed", 1, [])
    return taken


@pytest.mark.thorough
async def test_hostile_runs_hardly_slow_an_honest_one_down(redis_url: str, tmp_path: Path) -> None:
    async with open_fleet(redis_url, tmp_path / "home", mcp_config=servers(tmp_path), lease_seconds=15) as fleet:
        worker = await fleet.start()
        alone = await honest(fleet, tmp_path)
        requests = [*hostile(tmp_path)]
        ids = await asyncio.gather(*(fleet.hand_over(**request) for request in requests))
        beside = [await honest(fleet, tmp_path) for _ in range(2)]
        # Of a machine without a free processor each of the commands that compute has as much as ours.
        assert min(beside) <= 3 * alone + 2, (alone, beside)
        views = [await fleet.service.get(id) for id in ids]
        assert sum(each.status == "running" for each in views) > len(requests) / 2
        await asyncio.gather(*(fleet.service.cancel(id) for id in ids))
        ended = [await fleet.result(id, 60) for id in ids]
        assert {each.attempts for each in ended} == {1}
        assert worker.poll() is None
