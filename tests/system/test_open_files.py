"""A worker that may have few open files: runs wait for their turn, and none fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from deputize.worker.linux.open_files import FILES_PER_RUN, SPARE
from tests.runs.bench import call, say
from tests.runs.fleet import Fleet
from tests.runs.nesting import by_task
from tests.system.disk_filler import STEADY

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]
WORKER = "tests.system.few_files_worker"
PLAIN = [[call("write_file", path="a.txt", content="one")], [call("bash", command=STEADY)]]
NESTED = [[call("call_subagent", task="child", tools=["bash", "write_file"])]]
HEAVY = [[call("bash", command="sleep 100", run_in_background=True)] * 3, *PLAIN]


@pytest.mark.costly
@pytest.mark.parametrize(
    "turns", [PLAIN, NESTED, HEAVY], ids=["plain", "with subagents", "with commands in the background"]
)
async def test_more_runs_than_a_workers_open_files_carry_all_succeed(
    fleet: Fleet, tmp_path: Path, turns: list[list[dict[str, Any]]]
) -> None:
    tools = ["bash", "write_file", "call_subagent"]
    model = by_task(tmp_path, do=[*turns, [say("done")]], child=[*PLAIN, [say("done")]])
    ids = [await fleet.hand_over(model=model, tools=tools, approval_mode="auto") for _ in range(10)]
    worker = await fleet.start("1", str(SPARE + 4 * FILES_PER_RUN), program=WORKER)
    (card,) = await fleet.service.workers()
    assert card.concurrency == 4
    results = await asyncio.gather(*(fleet.result(id, 180) for id in ids))
    assert {(each.termination_reason, each.attempts, *each.errors) for each in results} == {("completed", 1)}
    assert worker.poll() is None
    assert "at most 4 delegations at the same time, not 50" in (fleet.settings.home / "worker-1.log").read_text()
