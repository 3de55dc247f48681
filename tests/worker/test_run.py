"""One run from its request to its result: real Redis, real files, real sandbox, a scripted model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from shared.delegation import DelegationRequest, StepStatus, ToolAgentResult
from shared.events import Replied, StepCompleted, StepStarted
from shared.runs.keys import LEASES, history_key, ledger_key, record_key
from tests.running import Bench, call, open_bench, say, script
from tests.waiting import until
from worker.task import carry_out

READ = call("read_file", path="a.txt")
WRITE = call("write_file", path="a.txt", content="one\n")


async def history_of(bench: Bench, result: ToolAgentResult) -> list[dict[str, Any]]:
    return [json.loads(entry) for entry in await bench.store.redis.lrange(history_key(result.delegation_id), 0, -1)]


def answered_once(history: list[dict[str, Any]]) -> bool:
    """Whether every call has exactly one answer, in the message right after it, in the order of asking."""
    for asked, answer in zip(history, [*history[1:], {"role": "user", "content": []}], strict=True):
        calls = [block["id"] for block in asked["content"] if block["type"] == "tool_use"]
        answers = [block["tool_use_id"] for block in answer["content"] if block["type"] == "tool_result"]
        if asked["role"] == "assistant" and calls != answers:
            return False
    return True


@pytest.mark.requirement("P-11", "S002-048", "S002-059", "S002-061", "S002-062")
async def test_a_run_does_what_the_model_asks_and_reports_facts(bench: Bench, tmp_path: Path) -> None:
    appended = call("bash", command="echo two >> a.txt; echo three > b.txt")
    model = script(tmp_path, [say("I write."), WRITE], [appended], [say("Two files were made.")])
    result = await bench.run(model=model)
    assert (result.status, result.success, result.termination_reason) == ("succeeded", True, "completed")
    assert result.summary == "Two files were made."
    assert [(change.path, change.change) for change in result.file_changes] == [
        ("a.txt", "created"),
        ("b.txt", "created"),
    ]
    assert result.files_modified == ["a.txt", "b.txt"]
    assert (result.turn_count, result.tool_call_count, result.errors) == (3, 2, [])
    assert "+two" in await bench.store.patch(result.delegation_id)


@pytest.mark.requirement("P-12", "S002-055", "S002-063")
async def test_each_step_starts_and_ends_under_the_same_id(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE, READ], [say("done")]))
    events = [envelope.event for envelope in await bench.events(result.delegation_id)]
    started = [event.step.id for event in events if isinstance(event, StepStarted)]
    ended = [event.step for event in events if isinstance(event, StepCompleted)]
    assert started == [step.id for step in ended]
    assert [(step.tool_name, step.type, step.status) for step in ended] == [
        ("write_file", "write", StepStatus.COMPLETED),
        ("read_file", "read", StepStatus.COMPLETED),
    ]


@pytest.mark.requirement("S000-106")
async def test_calls_that_change_something_run_in_the_order_of_asking(bench: Bench, tmp_path: Path) -> None:
    asked = [call("bash", command=f"echo {n} >> log.txt; cat log.txt") for n in range(3)]
    result = await bench.run(model=script(tmp_path, asked, [say("done")]))
    answers = (await history_of(bench, result))[2]["content"]
    assert [block["content"].split() for block in answers] == [["0"], ["0", "1"], ["0", "1", "2"]]


@pytest.mark.requirement("S002-058")
async def test_a_run_whose_steps_failed_can_still_be_done(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [call("read_file", path="none")], [say("It is not there.")]))
    assert (result.success, len(result.errors)) == (True, 1)


@pytest.mark.requirement("P-13")
async def test_the_events_of_a_run_are_numbered_without_gaps_and_end_with_its_result(
    bench: Bench, tmp_path: Path
) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE], [say("done")]))
    events = await bench.events(result.delegation_id)
    assert [envelope.seq for envelope in events] == list(range(1, len(events) + 1))
    assert [envelope.event.type for envelope in events] == [
        "run_queued",
        "run_started",
        "turn_started",
        "replied",
        "step_started",
        "step_completed",
        "turn_started",
        "replied",
        "run_finished",
    ]


@pytest.mark.requirement("S002-060")
async def test_the_details_are_one_line_a_step(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE, call("read_file", path="none")], [say("done")]))
    first, second = result.details.splitlines()
    assert first.startswith("1. [turn 1] ✓ write a.txt")
    assert second.startswith("2. [turn 1] ✗ read none — File not found: none")


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
    result = await bench.run(model=model, limits={"timeout_seconds": 5})
    assert (result.termination_reason, result.summary) == ("timeout", "It took too long.")
    assert result.execution_time_ms <= 6250
    assert "sleep 1000" in result.reaped
    assert result.files_modified == ["a.txt"]
    history = await history_of(bench, result)
    assert answered_once(history)
    assert [message["role"] for message in history] == ["user", "assistant"] * 2
    looked, cut, late, note = history[2]["content"]
    assert not looked.get("is_error")
    assert "outcome unknown: the run was stopped while this call was under way" in cut["content"]
    assert late["content"] == "Error: not executed: timeoutSeconds 5.0 reached"
    assert 'limit="timeoutSeconds 5.0 reached"' in note["text"]
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


@pytest.mark.requirement("P-10", "S000-110")
async def test_what_goes_wrong_with_a_call_is_an_answer_and_the_run_goes_on(bench: Bench, tmp_path: Path) -> None:
    wrong = [call("no_such_tool"), call("read_file", nothing=1), call("read_file", path="../out"), WRITE]
    result = await bench.run(model=script(tmp_path, wrong, [say("done")]), tools=["read_file", "write_file"])
    assert result.termination_reason == "completed"
    answers = [block["content"] for block in (await history_of(bench, result))[2]["content"]]
    assert answers[0].startswith("Error: there is no tool 'no_such_tool'")
    assert "Known parameters: path" in answers[1]
    assert answers[2].startswith("Error: ")
    assert not answers[3].startswith("Error: ")
    assert (len(result.errors), result.tool_call_count) == (3, 4)


async def test_read_only_mode_denies_what_changes_files_and_says_so(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE], [say("done")]), approval_mode="readOnly")
    assert result.file_changes == []
    assert "read-only" in result.errors[0]


@pytest.mark.requirement("S002-056")
async def test_a_turn_without_calls_ends_the_run(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [say("Nothing to do.")], [WRITE]))
    assert (result.turn_count, result.tool_call_count, result.success) == (1, 0, True)


async def test_a_reply_cut_at_its_length_is_asked_to_go_on(bench: Bench, tmp_path: Path) -> None:
    cut = {"blocks": [say("One half")], "stop": "max_tokens"}
    result = await bench.run(model=script(tmp_path, cut, [say("and the other.")]))
    assert (result.termination_reason, result.turn_count, result.summary) == ("completed", 2, "and the other.")


async def test_a_refusal_of_the_model_is_told_apart(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, {"blocks": [say("I must not.")], "stop": "refusal"}))
    assert (result.status, result.termination_reason) == ("failed", "refused")


async def test_a_model_that_is_away_ends_the_run_with_the_reason_and_the_work_so_far(
    bench: Bench, tmp_path: Path
) -> None:
    gone = {"blocks": [say("never")], "faults": [{"kind": "unavailable", "message": "key is wrong"}]}
    result = await bench.run(model=script(tmp_path, [WRITE], gone))
    assert result.termination_reason == "model_unavailable"
    assert "key is wrong" in result.summary
    assert result.files_modified == ["a.txt"]


async def test_a_retried_model_call_is_an_event_and_counts_once(bench: Bench, tmp_path: Path) -> None:
    turn = {"blocks": [say("done")], "faults": [{"kind": "cut", "message": "overloaded"}]}
    result = await bench.run(model=script(tmp_path, turn))
    types = [envelope.event.type for envelope in await bench.events(result.delegation_id)]
    assert types == ["run_queued", "run_started", "turn_started", "model_retried", "replied", "run_finished"]
    assert result.turn_count == 1


async def test_the_source_of_a_workspace_is_never_touched(bench: Bench, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("before\n")
    edit = call("edit_file", path="a.txt", old_string="before", new_string="after")
    model = script(tmp_path, [edit], [say("done")])
    result = await bench.run(model=model, workspace={"kind": "directory", "path": str(source)})
    assert (source / "a.txt").read_text() == "before\n"
    assert [(change.path, change.change) for change in result.file_changes] == [("a.txt", "modified")]


async def test_a_workspace_that_cannot_be_made_is_a_refusal(bench: Bench, tmp_path: Path) -> None:
    missing = {"kind": "directory", "path": str(tmp_path / "none")}
    result = await bench.run(model=script(tmp_path, [say("done")]), workspace=missing)
    assert result.termination_reason == "refused"
    assert str(tmp_path / "none") in result.summary


@pytest.mark.requirement("P-15", "P-09")
async def test_cancelling_stops_a_running_command_at_once(bench: Bench, tmp_path: Path) -> None:
    hold = call("bash", command="echo begun > a.txt; exec sleep 1000")
    model = script(tmp_path, [say("I begin."), call("glob", pattern="*")], [hold], [say("never")])
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    running = asyncio.create_task(carry_out(bench.services, id))
    file = bench.settings.workspaces / id / "files" / "a.txt"
    await until(file.exists)
    assert await bench.store.cancel(id) == "asked"
    await asyncio.wait_for(running, 2)
    result = await bench.result(id)
    assert (result.status, result.termination_reason, result.summary) == ("cancelled", "cancelled", "I begin.")
    assert result.files_modified == ["a.txt"]
    assert answered_once(await history_of(bench, result))


@pytest.mark.requirement("P-15")
async def test_cancelling_stops_a_running_model_call(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, {"blocks": [say("never")], "delay": 1000})
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    running = asyncio.create_task(carry_out(bench.services, id))
    await until(lambda: bench.store.redis.hget(record_key(id), "status"))
    await until(lambda: bench.services.leases.count)
    await bench.store.cancel(id)
    await asyncio.wait_for(running, 2)
    assert (await bench.result(id)).status == "cancelled"


async def test_a_worker_that_shuts_down_hands_the_run_over_and_the_next_one_finishes_it(
    bench: Bench, tmp_path: Path
) -> None:
    block = call("bash", command="echo $$ >> a.txt; exec sleep 1000")
    model = script(tmp_path, [WRITE], [block], [say("done")])
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    running = asyncio.create_task(carry_out(bench.services, id))
    file = bench.settings.workspaces / id / "files" / "a.txt"
    await until(lambda: file.exists() and len(file.read_text().splitlines()) == 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await bench.store.get(id)).status == "queued"
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.attempts, result.turn_count) == ("completed", 2, 3)
    assert answered_once(await history_of(bench, result))
    assert "outcome unknown" in json.dumps(await history_of(bench, result))


async def test_an_attempt_that_cannot_see_the_files_of_the_one_before_says_so(bench: Bench, tmp_path: Path) -> None:
    turns = [[WRITE], [call("bash", command="exec sleep 1000")], [say("done")]]
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, *turns)))
    running = asyncio.create_task(carry_out(bench.services, id))
    await until(lambda: bench.store.redis.hexists(ledger_key(id), "call_2_1"))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with open_bench(bench.settings.redis_url or "", tmp_path / "elsewhere") as other:
        await carry_out(other.services, id)
    result = await bench.result(id)
    assert result.termination_reason == "worker_lost"
    assert "DEPUTIZE_WORKSPACE_ROOT" in result.summary


async def test_the_next_attempt_works_on_a_copy_and_the_facts_stay_the_same(bench: Bench, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("kept.txt", "edited.txt"):
        (source / name).write_text("before\n")
    edit = call("edit_file", path="edited.txt", old_string="before", new_string="after")
    hold = call("bash", command="touch begun.txt; exec sleep 1000")
    turns = [[edit], [hold], [call("bash", command="echo x > new.txt")], [say("ok")]]
    model = script(tmp_path, *turns)
    request = DelegationRequest.model_validate(
        {"task": "do it", "model": model, "workspace": {"kind": "directory", "path": str(source)}}
    )
    id = await bench.accept(request)
    running = asyncio.create_task(carry_out(bench.services, id))
    folder = bench.settings.workspaces / id
    await until((folder / "files" / "begun.txt").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert [(change.path, change.change) for change in result.file_changes] == [
        ("edited.txt", "modified"),
        ("begun.txt", "created"),
        ("new.txt", "created"),
    ]
    assert not (folder / "files" / "new.txt").exists()
    assert (folder / "files.2" / "new.txt").read_text() == "x\n"


@pytest.mark.requirement("P-16")
async def test_a_ticket_for_a_finished_delegation_is_dropped(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE], [say("done")]))
    before = await bench.events(result.delegation_id)
    assert await carry_out(bench.services, result.delegation_id) is None
    assert await bench.events(result.delegation_id) == before


async def test_a_delegation_that_kills_its_workers_is_given_up(bench: Bench, tmp_path: Path) -> None:
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, [say("done")])))
    await bench.store.redis.hset(record_key(id), "lost", bench.settings.max_attempts)
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.status, result.termination_reason, result.attempts) == ("failed", "worker_lost", 0)


async def test_a_run_that_lost_its_lease_stops_and_writes_nothing(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [WRITE], {"blocks": [WRITE], "delay": 0.3}, [say("never")])
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    running = asyncio.create_task(carry_out(bench.services, id))
    file = bench.settings.workspaces / id / "files" / "a.txt"
    await until(file.exists)
    await bench.store.redis.hset(record_key(id), "fence", "9:other")
    seen = len(await bench.events(id))
    assert await asyncio.wait_for(running, 30) is None
    assert len(await bench.events(id)) == seen
    assert (await bench.store.get(id)).result is None
    await bench.store.redis.delete(record_key(id), f"{record_key(id)}:events", history_key(id), ledger_key(id), LEASES)


@pytest.mark.requirement("P-03")
async def test_two_runs_at_once_share_nothing(bench: Bench, tmp_path: Path) -> None:
    models = [
        script(tmp_path, [call("write_file", path="mine.txt", content=str(n))], [READ], [say(f"run {n}")])
        for n in range(2)
    ]
    results = await asyncio.gather(*(bench.run(model=model) for model in models))
    assert [result.summary for result in results] == ["run 0", "run 1"]
    files = [bench.settings.workspaces / result.delegation_id / "files" / "mine.txt" for result in results]
    assert [file.read_text() for file in files] == ["0", "1"]
