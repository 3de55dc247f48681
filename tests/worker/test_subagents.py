"""Delegations that a run hands over itself: what they get, and what the parent reads of them."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import TerminationReason
from deputize.shared.errors import ErrorType
from deputize.shared.events import RunStarted
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.disk import prune
from deputize.shared.runs.keys import LEASES, children_key, record_key
from deputize.worker.task import carry_out
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import Bench, call, open_bench, say
from tests.runs.nesting import begin, by_task, children_of, delegate, the_child_of
from tests.runs.toolbench import ImmediateSubagents, Toolbench
from tests.waiting import until
from tests.worker.parents import COST, HOLD, PRICE, SPENT, WRITE, run


@pytest.mark.requirement("S003-037", "S002-083")
async def test_a_child_does_its_piece_and_the_parent_reads_its_report(busy: Bench, tmp_path: Path) -> None:
    asked = delegate("child", context="It is short.", agent_name="scribe", tools=["write"])
    model = by_task(tmp_path, parent=[[asked], [say("Reported.")]], child=[[WRITE], [say("I wrote a.txt.")]])
    inherited = {"session_id": "s", "message_id": "m", "approval_mode": "auto", "priority": 7, "labels": {"a": "b"}}
    inherited |= {"on_cap": "wait"}
    id = await run(busy, model=model, **inherited)
    result, (child,), (step,) = await busy.result(id), await children_of(busy.store, id), await busy.steps(id)
    assert (result.success, result.summary, result.tool_call_count, result.turn_count) == (True, "Reported.", 1, 2)
    assert result.files_modified == []
    assert child.request.model_dump(include={*inherited, "parent_id", "tools", "model"}) == inherited | {
        "parent_id": id,
        "tools": ["write_file"],
        "model": model,
        "labels": {"a": "b", "subagent": "scribe"},
    }
    assert (step.type, step.tool_name, step.title) == (
        "delegate",
        "call_subagent",
        "delegate to scribe: child",
    )
    assert step.tool_agent_result == {
        "success": True,
        "summary": "I wrote a.txt.",
        "toolCallCount": 1,
        "filesModified": ["a.txt"],
    }
    (answer,) = await busy.answers(id)
    patch = f".deputize/subagents/{child.id}.patch"
    assert all(words in answer for words in ("I wrote a.txt.", "and not in yours", patch, "+one"))
    workspace = busy.settings.workspaces / id / "files"
    assert (workspace / patch).read_text() == await busy.store.patch(child.id)
    assert not (workspace / "a.txt").exists()


async def test_a_child_can_begin_with_a_copy_of_the_files_as_they_are_now(busy: Bench, tmp_path: Path) -> None:
    edit = call("edit_file", path="a.txt", old_string="one", new_string="two")
    ignore = call("write_file", path=".gitignore", content="a.txt\n")  # files that its parent made are copied, too
    parent = [[WRITE, ignore], [delegate("child", workspace="copy")], [say("ok")]]
    model = by_task(tmp_path, parent=parent, child=[[edit], [say("ok")]])
    id = await run(busy, model=model)
    (child,) = await children_of(busy.store, id)
    assert child.result is not None
    assert [(change.path, change.change) for change in child.result.file_changes] == [("a.txt", "modified")]
    assert (busy.settings.workspaces / id / "files" / "a.txt").read_text() == "one\n"
    assert (busy.settings.workspaces / child.id / "files" / "a.txt").read_text() == "two\n"


async def test_a_copy_that_another_machine_does_not_see_is_reported(bench: Bench, tmp_path: Path) -> None:
    model = by_task(tmp_path, parent=[[WRITE], [delegate("child", workspace="copy")], [say("ok")]], child=[[say("ok")]])
    id, running = await begin(bench, model=model)
    child = await the_child_of(bench, id)
    async with open_bench(bench.settings.redis_url or "", tmp_path / "elsewhere") as other:
        await carry_out(other.services, child.id)
    await running
    (_, answer) = await bench.answers(id)
    assert "worker_lost" in answer
    assert "DEPUTIZE_WORKSPACE_ROOT on a volume that all workers share" in answer


async def test_a_child_that_failed_is_a_failed_step_with_its_report(busy: Bench, tmp_path: Path) -> None:
    model = by_task(tmp_path, parent=[[delegate("child", max_turns=1)], [say("ok")]], child=[[WRITE], [say("never")]])
    id = await run(busy, model=model)
    (step,) = await busy.steps(id)
    assert step.error == "the subagent did not complete its task (max_turns); its work so far is below"
    assert step.tool_agent_result is not None
    assert step.tool_agent_result["success"] is False
    assert "No more." in (await busy.answers(id))[0]
    assert (await busy.result(id)).success


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (TerminationReason.COMPLETED, None),
        *((reason, ErrorType.CANCELLED) for reason in (TerminationReason.CANCELLED, TerminationReason.WRAPPED_UP)),
        *((TerminationReason(reason), ErrorType.LIMIT_REACHED) for reason in ("max_turns", "max_tool_calls", "budget")),
        (TerminationReason.TIMEOUT, ErrorType.TIMEOUT),
        *((TerminationReason(reason), ErrorType.EXECUTION_FAILED) for reason in ("error", "worker_lost", "refused")),
    ],
)
async def test_why_a_child_ended_is_the_kind_of_the_error(
    bare_desk: Toolbench, reason: TerminationReason, kind: ErrorType | None
) -> None:
    bare_desk.subagents = ImmediateSubagents(reason)
    result = await bare_desk.call("call_subagent", task="the piece")
    assert (result.error_type, "the piece" in result.for_model) == (kind, True)


@pytest.mark.requirement("S003-038")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"task": " \n"}, "describe the work in words"),
        ({"task": "child", "agent_name": "no/such\nname"}, "name"),
        ({"task": "child", "tools": ["read_file", "fly"]}, "tools: 'fly' is not a tool of this run"),
        ({"task": "child", "tools": ["bash"]}, "There are read_file, call_subagent."),
        ({"task": "child", "max_turns": 0}, "max_turns"),
        ({"task": "child", "effort": "huge"}, "effort"),
        ({"task": "child", "effort": "low"}, "effort: the model scripted"),
        ({"task": "child", "workspace": "mine"}, "workspace"),
        ({"task": "child", "context": "x" * 1_100_000}, "no subagent was started: task and context are"),
    ],
)
async def test_arguments_are_judged_before_anything_is_handed_over(
    bench: Bench, tmp_path: Path, arguments: dict[str, Any], said: str
) -> None:
    model = by_task(tmp_path, parent=[[call("call_subagent", **arguments)], [say("ok")]])
    id = await run(bench, model=model, tools=["read_file", "call_subagent"])
    (answer,) = await bench.answers(id)
    assert answer.startswith("Error: ")
    assert said in answer
    assert not bench.sent
    assert await children_of(bench.store, id) == []


async def test_the_children_of_one_turn_work_side_by_side(bench: Bench, tmp_path: Path) -> None:
    asked = [delegate(f"child {n}", tools=[]) for n in range(3)]
    model = by_task(tmp_path, parent=[asked, [say("ok")]], child=[[say("{{task}}")]])
    id, running = await begin(bench, model=model)
    await until(lambda: len(bench.sent) == 3)

    async def waits() -> bool:
        return (await bench.store.get(id)).status == "waiting"

    await until(waits)
    for ticket in bench.sent[::-1]:
        await carry_out(bench.services, ticket.id)
    await running
    assert [f"child {n}" in answer for n, answer in enumerate(await bench.answers(id))] == [True] * 3
    assert (await bench.result(id)).success


async def test_a_child_whose_record_was_removed_is_not_done_again(bench: Bench, tmp_path: Path) -> None:
    id, running = await begin(bench, model=by_task(tmp_path, parent=[[delegate("child")], [say("ok")]]))
    child = await the_child_of(bench, id)
    running.cancel()
    await asyncio.wait({running})
    await bench.store.cancel(child.id)
    assert (await prune(bench.store.redis, 0)).removed == 1
    await carry_out(bench.services, id)
    assert "the record of this subagent was removed" in (await bench.answers(id))[0]
    assert child.id not in [ticket.id for ticket in bench.sent]
    assert (await bench.result(id)).success


async def test_redis_away_for_a_moment_loses_no_child(redis_process: RedisProcess, tmp_path: Path) -> None:
    model = by_task(tmp_path, parent=[[delegate("child")], [say("ok")]], child=[[say("I am back.")]])
    async with open_bench(redis_process.url, tmp_path / "home") as bench:
        id, running = await begin(bench, model=model)
        child = await the_child_of(bench, id)
        redis_process.kill()
        redis_process.start()
        await until(lambda: bench.services.pipe.away is False)
        await carry_out(bench.services, child.id)
        await asyncio.wait({running}, timeout=20)
        result = await bench.result(id)
        assert (result.success, result.attempts) == (True, 1)
        assert "I am back." in (await bench.answers(id))[0]


async def test_a_child_that_a_caller_gave_a_run_is_none_of_its_own(bench: Bench, tmp_path: Path) -> None:
    id, running = await begin(bench, model=by_task(tmp_path, parent=[{"blocks": [say("ok")], "delay": 0.3}]))
    other = await bench.accept(DelegationRequest(task="help", parent_id=id))
    await running
    assert (await bench.store.get(other)).status == "queued"
    assert await bench.store.redis.smembers(children_key(id)) == {other}
    await bench.store.cancel(other)
    assert await bench.store.redis.zcard(LEASES) == 0


# Subagents never outlive the run that started them.


async def test_a_run_that_is_given_up_ends_its_children(bench: Bench, tmp_path: Path) -> None:
    model = by_task(tmp_path, parent=[[delegate("child")], [say("ok")]], child=[[say("ok")]])
    id, running = await begin(bench, model=model)
    child = await the_child_of(bench, id)
    running.cancel()
    await asyncio.wait({running})
    await bench.store.redis.hset(record_key(id), mapping=dict.fromkeys(("lost", "tried"), bench.settings.max_attempts))
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


# Which runs are offered subagents, and how deep delegations nest.


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


# What subagents may spend, and that the parent pays for them.


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


@pytest.mark.costly
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
    await bench.store.redis.hset(record_key(id), mapping=dict.fromkeys(("lost", "tried"), bench.settings.max_attempts))
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.usage.cost_usd) == ("worker_lost", pytest.approx(2 * COST))
