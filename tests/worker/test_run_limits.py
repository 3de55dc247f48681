"""Every limit of a run: how it ends, and that the work so far is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deputize.shared.events import Replied
from deputize.shared.runs.keys import ledger_key
from tests.running import Bench, call, open_bench, say, script
from tests.worker.run_history import WRITE, answered_once, history_of


@pytest.mark.requirement("P-05", "P-08")
async def test_thirty_turns_mean_thirty_and_one_without_tools_for_the_summary(bench: Bench, tmp_path: Path) -> None:
    turns = [[call("list_directory", path=".")], [call("glob", pattern="*")]] * 3
    model = script(tmp_path, *turns, summary="This far I came.")
    result = await bench.run(model=model, limits={"max_turns": 4}, tools=["*"])
    assert (result.status, result.success, result.termination_reason) == ("failed", False, "max_turns")
    assert (result.turn_count, result.tool_call_count, result.summary) == (4, 4, "This far I came.")
    replies = [e.event for e in await bench.events(result.delegation_id) if isinstance(e.event, Replied)]
    assert ([reply.turn for reply in replies], replies[-1].tool_calls) == ([1, 2, 3, 4, 5], [])


@pytest.mark.requirement("P-06", "P-09")
async def test_calls_past_the_limit_are_answered_and_not_executed(bench: Bench, tmp_path: Path) -> None:
    calls = [call("write_file", path=f"{n}.txt", content="x") for n in range(5)]
    model = script(tmp_path, calls, [say("never")], summary="Three of five.")
    result = await bench.run(model=model, limits={"max_tool_calls": 3})
    assert (result.termination_reason, result.tool_call_count) == ("max_tool_calls", 3)
    assert result.files_modified == ["0.txt", "1.txt", "2.txt"]
    history = await history_of(bench, result)
    assert answered_once(history)
    late = history[2]["content"][3:5]
    assert all("not executed: limit reached (maxToolCalls 3)" in block["content"] for block in late)


async def test_a_run_that_needs_just_its_last_call_is_completed(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE], [say("done")]), limits={"max_tool_calls": 1})
    assert result.termination_reason == "completed"


@pytest.mark.requirement("P-07", "P-08", "P-09")
async def test_time_runs_out_during_a_command_and_nothing_of_it_lives_on(bench: Bench, tmp_path: Path) -> None:
    slow = call("bash", command="echo begun > a.txt; exec sleep 1000")
    calls = [call("glob", pattern="*"), slow, WRITE]
    model = script(tmp_path, calls, [say("never")], summary="It took too long.")
    result = await bench.run(model=model, limits={"timeout_seconds": 8})
    assert (result.termination_reason, result.summary) == ("timeout", "It took too long.")
    assert result.execution_time_ms <= 10_000
    assert "sleep 1000" in result.reaped
    assert result.files_modified == ["a.txt"]
    history = await history_of(bench, result)
    assert answered_once(history)
    assert [message["role"] for message in history] == ["user", "assistant"] * 2
    looked, cut, late, note = history[2]["content"]
    assert not looked.get("is_error")
    assert "outcome unknown: the run was stopped while this call was under way" in cut["content"]
    assert late["content"] == "Error: not executed: timeoutSeconds 8 reached"
    assert 'limit="timeoutSeconds 8 reached"' in note["text"]
    kept = json.loads(await bench.store.redis.hget(ledger_key(result.delegation_id), "call_1_2"))
    assert kept["state"] == "finished"


@pytest.mark.requirement("P-18", "S000-084")
async def test_a_process_that_a_command_leaves_behind_is_ended_and_named(bench: Bench, tmp_path: Path) -> None:
    left = call("bash", command="(setsid sleep 1000 &); sleep 0.1; echo done")
    result = await bench.run(model=script(tmp_path, [left], [say("done")]))
    assert (result.termination_reason, result.reaped) == ("completed", ["sleep"])


@pytest.mark.requirement("P-07")
async def test_time_runs_out_during_a_model_call(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, {"blocks": [say("never")], "delay": 1000}, summary="The model was slow.")
    result = await bench.run(model=model, limits={"timeout_seconds": 4})
    assert (result.termination_reason, result.summary) == ("timeout", "The model was slow.")
    assert result.execution_time_ms <= 5000


async def test_a_token_budget_ends_the_run_before_it_is_exceeded(bench: Bench, tmp_path: Path) -> None:
    usage = {"input": 900, "output": 100}
    model = script(tmp_path, *({"blocks": [call("glob", pattern=str(n))], "usage": usage} for n in range(20)))
    result = await bench.run(model=model, limits={"max_tokens": 12_000})
    assert result.termination_reason == "budget"
    assert 0 < result.usage.total <= 12_000


async def test_a_money_budget_ends_the_run_before_it_is_exceeded(bench: Bench, tmp_path: Path) -> None:
    usage = {"input": 1000, "output": 100}
    turns = [{"blocks": [call("glob", pattern=str(n))], "usage": usage} for n in range(30)]
    model = script(tmp_path, *turns, price={"input": 2, "output": 10})
    result = await bench.run(model=model, limits={"max_cost_usd": 0.03})
    assert result.termination_reason == "budget"
    assert 0 < (result.usage.cost_usd or 0) <= 0.03


async def test_a_money_limit_for_a_model_without_a_price_is_refused(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [say("done")]), limits={"max_cost_usd": 1})
    assert result.termination_reason == "refused"
    assert "maxCostUsd cannot be held" in result.summary


@pytest.mark.requirement("P-20")
async def test_a_run_in_circles_is_stopped(bench: Bench, tmp_path: Path) -> None:
    same = call("list_directory", path=".")
    model = script(tmp_path, *[[same, same]] * 9, summary="I went in circles.")
    result = await bench.run(model=model, tools=["*"])
    assert (result.termination_reason, result.tool_call_count) == ("loop_detected", 6)
    assert result.summary == "I went in circles."


@pytest.mark.requirement("P-20")
async def test_the_watch_for_circles_can_be_switched_off(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home", loop_detection=False) as bench:
        model = script(tmp_path, *[[call("list_directory", path=".")]] * 9, [say("done")])
        assert (await bench.run(model=model, tools=["*"])).termination_reason == "completed"


async def test_a_workspace_that_grew_too_large_ends_its_run_with_what_was_done(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home", sandbox={"disk_bytes": 1 << 20}) as bench:
        large = call("write_file", path="large.txt", content="x" * (2 << 20))
        result = await bench.run(model=script(tmp_path, [large], [WRITE], [say("never")], summary="It was too much."))
        assert (result.termination_reason, result.summary) == ("budget", "It was too much.")
        assert (result.files_modified, result.tool_call_count) == (["large.txt"], 1)
        assert "sandbox.disk_bytes 1048576 reached" in json.dumps(await history_of(bench, result))
        assert ((await bench.store.get(result.delegation_id)).disk_bytes or 0) > 2 << 20
        (tmp_path / "large").mkdir()
        (tmp_path / "large/file").write_bytes(bytes(2 << 20))
        workspace = {"kind": "directory", "path": str(tmp_path / "large")}
        result = await bench.run(model=script(tmp_path, [say("never")]), workspace=workspace)
        assert result.termination_reason == "refused"
        assert "more than 0.000977 GiB (raise sandbox.disk_bytes" in result.summary
