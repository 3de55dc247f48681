"""What subagents may spend, and that the parent pays for them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from deputize.shared.runs.keys import record_key
from deputize.worker.task import carry_out
from tests.nesting import begin, by_task, children_of, delegate, the_child_of
from tests.running import Bench, call, say
from tests.waiting import until
from tests.worker.parents import COST, PRICE, SPENT, WRITE, run


async def test_a_childs_limits_are_within_those_of_its_parent(bench: Bench, tmp_path: Path) -> None:
    asked = {"max_turns": 40, "max_tool_calls": 3, "timeout_seconds": 9000, "max_tokens": 10_000_000}
    model = by_task(tmp_path, parent=[[delegate("child", **asked)], [say("ok")]], child=[[say("ok")]])
    limits = {"max_turns": 5, "max_tool_calls": 20, "timeout_seconds": 100, "max_tokens": 200_000}
    id, running = await begin(bench, model=model, limits=limits)
    child = await the_child_of(bench, id)
    given = child.effective_limits
    assert (given.max_turns, given.max_tool_calls) == (5, 3)
    assert 0 < given.timeout_seconds < 90
    assert given.max_tokens is not None
    assert given.max_tokens + (await usage_so_far(bench, id)) == 200_000
    await carry_out(bench.services, child.id)
    await running


async def usage_so_far(bench: Bench, id: str) -> int:
    checkpoint = json.loads(await bench.store.redis.hget(record_key(id), "checkpoint"))
    return checkpoint["usage"]["inputTokens"] + checkpoint["usage"]["outputTokens"]


async def test_what_children_cost_is_the_parents_and_all_together_hold_its_limit(busy: Bench, tmp_path: Path) -> None:
    turn = {"blocks": [call("glob", pattern="{{calls}}")], "usage": SPENT, "repeat": 20}
    first = {"blocks": [delegate(f"child {n}") for n in range(3)], "usage": SPENT}
    model = by_task(tmp_path, PRICE, parent=[first, {"blocks": [say("ok")], "usage": SPENT}], child=[turn])
    id = await run(busy, model=model, limits={"max_cost_usd": 0.1})
    result, children = await busy.result(id), await children_of(busy.store, id)
    costs = [child.result.usage.cost_usd or 0 for child in children if child.result]
    assert {child.result and child.result.termination_reason for child in children} == {"budget"}
    assert [child.effective_limits.max_cost_usd for child in children] == [pytest.approx((0.1 - COST) / 4)] * 3
    assert result.usage.cost_usd == pytest.approx(2 * COST + sum(costs))
    assert max(costs) <= (0.1 - COST) / 4
    assert (result.termination_reason, (result.usage.cost_usd or 1) <= 0.1) == ("completed", True)


async def test_a_budget_that_is_used_up_starts_no_child(bench: Bench, tmp_path: Path) -> None:
    first = {"blocks": [delegate("child")], "usage": {"input": 9_900, "output": 50}}
    model = by_task(tmp_path, parent=[first, [say("ok")]])
    id = await run(bench, model=model, limits={"max_tokens": 10_000}, tools=["call_subagent"])
    assert (await bench.answers(id))[0] == "Error: no subagent was started: maxTokens 10000 reached"
    assert await children_of(bench.store, id) == []


@pytest.mark.parametrize("ended", ["before", "after"])
async def test_the_next_attempt_finds_the_same_child_and_counts_it_once(
    bench: Bench, tmp_path: Path, ended: str
) -> None:
    child_turns = [{"blocks": [WRITE], "usage": SPENT}, {"blocks": [say("ok")], "usage": SPENT}]
    first = {"blocks": [delegate("child")], "usage": SPENT}
    model = by_task(tmp_path, PRICE, parent=[first, {"blocks": [say("done")], "usage": SPENT}], child=child_turns)
    id, running = await begin(bench, model=model, limits={"max_cost_usd": 1})
    child = await the_child_of(bench, id)
    running.cancel()
    await asyncio.wait({running})
    assert (await bench.store.get(id)).status == "queued"
    if ended == "before":
        await carry_out(bench.services, child.id)
    again = asyncio.create_task(carry_out(bench.services, id))
    if ended == "after":
        await until(lambda: bench.sent, 60)
        await carry_out(bench.services, child.id)
    await again
    result = await bench.result(id)
    assert (result.success, result.attempts, result.errors) == (True, 2, [])
    assert result.usage.cost_usd == pytest.approx(4 * COST)
    assert [one.id for one in await children_of(bench.store, id)] == [child.id]
    assert [step.status for step in await bench.steps(id)] == ["completed"]


async def test_an_attempt_that_ends_counts_what_earlier_ones_handed_over(bench: Bench, tmp_path: Path) -> None:
    """The child ended after its parent's worker was lost, and the next attempt has no time for it any more."""
    first = {"blocks": [delegate("child")], "usage": SPENT}
    model = by_task(tmp_path, PRICE, parent=[first, [say("ok")]], child=[{"blocks": [say("ok")], "usage": SPENT}])
    id, running = await begin(bench, model=model)
    child = await the_child_of(bench, id)
    running.cancel()
    await asyncio.wait({running})
    await carry_out(bench.services, child.id)
    await bench.store.redis.hset(record_key(id), "lost", bench.settings.max_attempts)
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.usage.cost_usd) == ("worker_lost", pytest.approx(2 * COST))
