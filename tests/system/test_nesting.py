"""Delegations inside delegations, carried out by real workers that have few slots and may be killed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import Delegation
from tests.runs.bench import call, say
from tests.runs.fleet import Fleet
from tests.runs.nesting import by_task, children_of, delegate
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

HOLD = call("bash", command="echo $$ >> held.txt; exec sleep 1000")
SPENT = {"input": 100, "output": 10}


async def child_of(fleet: Fleet, id: str) -> Delegation:
    (child,) = await until(lambda: children_of(fleet.service.store, id), 60)
    return child


def held(fleet: Fleet, id: str) -> Path:
    return fleet.settings.workspaces / id / "files" / "held.txt"


@pytest.mark.requirement("P-04")
async def test_one_slot_is_enough_for_a_chain_of_runs_that_wait_for_each_other(fleet: Fleet, tmp_path: Path) -> None:
    deeper: dict[str, Any] = {"tools": ["call_subagent"]}
    model = by_task(
        tmp_path,
        first=[[delegate("second", **deeper), delegate("second", **deeper)], [say("1")]],
        second=[[delegate("third", **deeper)], [say("2 from {{result}}")]],
        third=[[delegate("last", tools=[])], [say("3 from {{result}}")]],
        last=[[say("4")]],
    )
    await fleet.start("1", "--concurrency", "1")
    id = await fleet.hand_over("first", model=model, tools=["call_subagent"])
    result = await fleet.result(id, 60)
    assert (result.success, result.tool_call_count, result.errors) == (True, 2, [])
    seconds = await children_of(fleet.service.store, id)
    assert [child.status for child in seconds] == ["succeeded", "succeeded"]
    for child in seconds:
        assert child.result is not None
        answer = json.loads(child.result.summary.removeprefix("2 from "))
        assert answer["terminationReason"] == "completed"
        assert json.loads(answer["summary"].removeprefix("3 from "))["summary"] == "4"


@pytest.mark.requirement("P-15")
async def test_a_cancelled_run_takes_its_childs_command_with_it(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.start()
    model = by_task(tmp_path, parent=[[delegate("child")], [say("never")]], child=[[HOLD], [say("never")]])
    id = await fleet.hand_over("parent", model=model, tools=["*", "call_subagent"])
    child = await child_of(fleet, id)
    await until(held(fleet, child.id).exists, 30)
    assert (await fleet.service.get(id)).status == "waiting"
    await fleet.service.cancel(id)
    results = await asyncio.gather(*(fleet.result(each, 5) for each in (id, child.id)))
    ended = [result.status for result in results]
    assert ended == ["cancelled", "cancelled"], [result.errors for result in results]
    assert results[1].reaped  # its shell, or the sleep that it became


async def test_a_killed_worker_loses_and_doubles_no_child(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.start("1")
    child_turns = [{"blocks": [HOLD], "usage": SPENT}, {"blocks": [say("I am done.")], "usage": SPENT}]
    turns = [{"blocks": [delegate("child")], "usage": SPENT}, {"blocks": [say("{{result}}")], "usage": SPENT}]
    id = await fleet.hand_over(
        "parent", model=by_task(tmp_path, parent=turns, child=child_turns), tools=["*", "call_subagent"]
    )
    child = await child_of(fleet, id)
    await until(held(fleet, child.id).exists, 30)
    await fleet.start("2")
    await fleet.kill("1")
    result = await fleet.result(id, 60)
    assert (result.success, result.attempts) == (True, 2)
    assert "I am done." in result.summary
    assert [one.id for one in await children_of(fleet.service.store, id)] == [child.id]
    assert (await fleet.result(child.id)).attempts == 2
    assert result.usage.total == 4 * 110
