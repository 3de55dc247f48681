"""Which runs are offered subagents, and how deep delegations nest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.events import RunStarted
from deputize.shared.request import DelegationRequest
from tests.nesting import by_task, children_of, delegate
from tests.running import Bench, call, open_bench, say
from tests.worker.parents import run

NESTED = {"tools": ["read_file", "call_subagent"]}


async def offered(bench: Bench, **fields: Any) -> list[str]:
    """The tools of a run that has nothing to do."""
    result = await bench.run("parent", **fields)
    return next(e.event.tools for e in await bench.events(result.delegation_id) if isinstance(e.event, RunStarted))


@pytest.mark.requirement("P-04")
async def test_only_who_asks_for_subagents_by_name_gets_them(bench: Bench, tmp_path: Path) -> None:
    model = by_task(tmp_path, parent=[[say("done")]])
    assert "call_subagent" not in await offered(bench, model=model)
    assert "call_subagent" not in await offered(bench, model=model, tools=["*"])
    assert "call_subagent" in await offered(bench, model=model, tools=["*", "call_subagent"])


@pytest.mark.requirement("P-04")
@pytest.mark.parametrize(("asked", "nested"), [({}, False), ({"tools": ["read_file"]}, False), (NESTED, True)])
async def test_a_child_has_subagents_of_its_own_only_where_the_call_names_them(
    busy: Bench, tmp_path: Path, asked: dict[str, Any], nested: bool
) -> None:
    model = by_task(tmp_path, parent=[[delegate("child", **asked)], [say("ok")]], child=[[say("done")]])
    (child,) = await children_of(busy.store, await run(busy, model=model))
    (started,) = [e.event for e in await busy.events(child.id) if isinstance(e.event, RunStarted)]
    assert ("call_subagent" in started.tools, "read_file" in started.tools) == (nested, True)


@pytest.mark.requirement("P-04")
async def test_subagents_are_switched_on_and_off_by_the_operator(redis_url: str, tmp_path: Path) -> None:
    model = by_task(tmp_path, parent=[[say("done")]])
    async with open_bench(redis_url, tmp_path / "on", tools={"enable_subagent": True}) as bench:
        assert "call_subagent" in await offered(bench, model=model)
    for off in ({"enable_subagent": False}, {"max_depth": 0}):
        async with open_bench(redis_url, tmp_path / "off", tools=off) as bench:
            result = await bench.run("parent", model=model, tools=["call_subagent"])
            assert (result.termination_reason, "call_subagent" in result.summary) == ("refused", True)


@pytest.mark.requirement("P-04")
async def test_a_chain_of_delegations_ends_at_its_depth(busy: Bench, tmp_path: Path) -> None:
    deeper = {"tools": ["call_subagent"]}
    model = by_task(
        tmp_path,
        first=[[delegate("second", **deeper)], [say("1")]],
        second=[[delegate("third", **deeper)], [say("2")]],
        third=[[delegate("last", **deeper)], [delegate("last", tools=[])], [say("3")]],
        last=[[call("call_subagent", task="too deep")], [say("4")]],
    )
    id = await run(busy, task="first", model=model)
    for _ in range(2):
        (child,) = await children_of(busy.store, id)
        id = child.id
    refused, done = await busy.answers(id)
    assert "delegations are nested 3 deep at most. Leave it out." in refused
    assert json.loads(done)["summary"] == "4"
    (last,) = await children_of(busy.store, id)
    assert "there is no tool 'call_subagent' in this run" in (await busy.answers(last.id))[0]


@pytest.mark.requirement("P-04")
async def test_a_caller_that_names_a_parent_is_as_deep_as_that_makes_it(bench: Bench, tmp_path: Path) -> None:
    model, parents = by_task(tmp_path, parent=[[say("done")]]), list[str]()
    for _ in range(3):
        parents.append(await bench.accept(DelegationRequest(task="wait", parent_id=parents[-1] if parents else None)))
    asked = {"model": model, "tools": ["bash", "call_subagent"]}
    assert await offered(bench, **asked, parent_id=parents[1]) == ["bash", "call_subagent"]
    assert await offered(bench, **asked, parent_id=parents[2]) == ["bash"]
    await bench.store.cancel(parents[0])
