"""Delegations that a run hands over itself: what they get, and what the parent reads of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.request import DelegationRequest
from deputize.shared.runs.disk import prune
from deputize.shared.runs.keys import LEASES, children_key
from deputize.worker.task import carry_out
from tests.nesting import begin, by_task, children_of, delegate, the_child_of
from tests.redis_server import RedisProcess
from tests.running import Bench, call, open_bench, say
from tests.waiting import until
from tests.worker.parents import WRITE, run


@pytest.mark.requirement("S003-037", "S002-083")
async def test_a_child_does_its_piece_and_the_parent_reads_its_report(busy: Bench, tmp_path: Path) -> None:
    asked = delegate("child", context="It is short.", agent_name="scribe", tools=["write"])
    model = by_task(tmp_path, parent=[[asked], [say("Reported.")]], child=[[WRITE], [say("I wrote a.txt.")]])
    inherited = {"session_id": "s", "message_id": "m", "approval_mode": "auto", "priority": 7, "labels": {"a": "b"}}
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


async def test_a_copy_that_another_machine_does_not_see_is_said_so(bench: Bench, tmp_path: Path) -> None:
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


@pytest.mark.requirement("S003-038")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"task": " \n"}, "say in words what is to be done"),
        ({"task": "child", "agent_name": "no/such\nname"}, "name"),
        ({"task": "child", "tools": ["read_file", "fly"]}, "tools: 'fly' is not a tool of this run"),
        ({"task": "child", "tools": ["bash"]}, "There are read_file, call_subagent."),
        ({"task": "child", "max_turns": 0}, "max_turns"),
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
