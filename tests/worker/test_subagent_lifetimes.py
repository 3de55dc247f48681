"""Subagents never outlive the run that started them."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from deputize.shared.request import Limits
from deputize.shared.runs.keys import record_key
from deputize.worker.task import carry_out
from tests.nesting import begin, by_task, delegate, the_child_of
from tests.running import Bench, say
from tests.waiting import until
from tests.worker.parents import HOLD


async def test_a_run_that_is_given_up_ends_its_children(bench: Bench, tmp_path: Path) -> None:
    model = by_task(tmp_path, parent=[[delegate("child")], [say("ok")]], child=[[say("ok")]])
    id, running = await begin(bench, model=model)
    child = await the_child_of(bench, id)
    running.cancel()
    await asyncio.wait({running})
    await bench.store.redis.hset(record_key(id), "lost", bench.settings.max_attempts)
    await carry_out(bench.services, id)
    assert (await bench.result(id)).termination_reason == "worker_lost"
    assert (await bench.store.get(child.id)).status == "cancelled"


@pytest.mark.requirement("P-15")
async def test_when_the_time_is_over_the_children_are_over_too(bench: Bench, tmp_path: Path) -> None:
    asked = [delegate("child"), delegate("child")]
    model = by_task(tmp_path, parent=[asked, [say("never")]], child=[[HOLD], [say("never")]])
    id, running = await begin(bench, model=model, limits={"timeout_seconds": 5})
    await until(lambda: len(bench.sent) == 2, 60)
    started, waiting = (ticket.id for ticket in bench.sent)
    # By its limits a child ends before its parent, unless it had to wait for its start.
    await bench.store.redis.hset(record_key(started), "limits", Limits(timeout_seconds=1000).to_json())
    working = asyncio.create_task(carry_out(bench.services, started))
    await until((bench.settings.workspaces / started / "files" / "held.txt").exists, 20)
    await running
    await working
    result, ended = await bench.result(id), await bench.result(started)
    assert (result.termination_reason, ended.status) == ("timeout", "cancelled")
    assert (ended.files_modified, (await bench.result(waiting)).status) == (["held.txt"], "cancelled")
    assert result.execution_time_ms <= 5500


@pytest.mark.requirement("P-15")
async def test_cancelling_a_run_ends_its_children_whether_they_have_started_or_not(
    bench: Bench, tmp_path: Path
) -> None:
    asked = [delegate("child"), delegate("child")]
    model = by_task(tmp_path, parent=[asked, [say("never")]], child=[[HOLD], [say("never")]])
    id, running = await begin(bench, model=model)
    await until(lambda: len(bench.sent) == 2, 60)
    started, waiting = (ticket.id for ticket in bench.sent)
    working = asyncio.create_task(carry_out(bench.services, started))
    await until((bench.settings.workspaces / started / "files" / "held.txt").exists, 20)
    await bench.store.cancel(id)
    await asyncio.wait({running, working}, timeout=20)
    statuses = [(await bench.store.get(each)).status for each in (id, started, waiting)]
    assert statuses == ["cancelled"] * 3


async def _waits(bench: Bench, id: str) -> bool:
    return (await bench.store.get(id)).status == "waiting"


async def test_a_run_that_is_anothers_by_now_leaves_the_children_alone(bench: Bench, tmp_path: Path) -> None:
    model = by_task(tmp_path, parent=[[delegate("child")], [say("never")]])
    id, running = await begin(bench, model=model, limits={"timeout_seconds": 6})
    child = await the_child_of(bench, id)
    await until(partial(_waits, bench, id))
    await bench.store.redis.hset(record_key(id), "fence", "9:other")
    assert await running is None
    assert [(await bench.store.get(each)).status for each in (id, child.id)] == ["waiting", "queued"]
    await bench.store.redis.hset(record_key(id), "status", "queued")
    await bench.store.cancel(id)
