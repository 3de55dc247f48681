"""Attempts: only lost workers count, progress forgives them, and a run that is given up still has its facts."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from deputize.shared.delegation import Status
from deputize.shared.errors import Misconfigured
from deputize.shared.events import RunResumed, StepCompleted, StepStarted
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import LEASES, history_key, ledger_key, record_key
from deputize.shared.runs.record import MOST_STARTS
from deputize.worker.task import carry_out
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.waiting import until
from tests.worker.run_history import WRITE, answered_once, history_of

TWO_LINES = call("write_file", path="a.txt", content="one\ntwo\n")


def hold(turn: int) -> list[dict[str, Any]]:
    """A turn whose command shows that it has begun, and goes on."""
    return [call("bash", command=f"touch begun-{turn}; exec sleep 1000")]


async def begin(bench: Bench, id: str, turn: int) -> asyncio.Task[Any]:
    """An attempt that has come to the command which holds that turn."""
    running = asyncio.create_task(carry_out(bench.services, id))
    folder = bench.settings.workspaces / id
    await until(lambda: list(folder.glob(f"files*/begun-{turn}")))
    return running


async def stop(running: asyncio.Task[Any]) -> None:
    """What a worker does at SIGTERM."""
    running.cancel()
    await asyncio.wait({running})


async def lost_count(bench: Bench, id: str) -> str:
    return await bench.store.redis.hget(record_key(id), "lost") or "0"


async def resumed(bench: Bench, id: str) -> list[str]:
    return [e.event.reason for e in await bench.events(id) if isinstance(e.event, RunResumed)]


async def test_any_number_of_orderly_stops_costs_a_run_nothing(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, *map(hold, range(5)), [say("done")])
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    for turn in range(5):
        await stop(await begin(bench, id, turn))
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert result.termination_reason == "completed"
    assert (result.attempts, await lost_count(bench, id)) == (6, "0")
    assert await resumed(bench, id) == ["the previous attempt was handed over: its worker was stopped"] * 5
    steps = [step for step in result.errors if "outcome unknown" in step]
    assert len(steps) == 5
    assert all("handed over to another worker" in step and "lost" not in step for step in steps)


@pytest.mark.parametrize("stalls", [2, 3])
async def test_a_run_whose_workers_stood_still_ends_after_it_had_a_process_of_its_own(
    bench: Bench, tmp_path: Path, stalls: int
) -> None:
    """Until then it is carried out; after that the calls are named that blocked it."""
    hold = call("bash", command="touch begun; exec sleep 1000")
    id = await bench.accept(DelegationRequest(task="t", model=script(tmp_path, [hold], [say("done")])))
    await bench.interrupt(id, (bench.settings.workspaces / id / "files" / "begun").exists)
    await bench.store.redis.hset(record_key(id), "stalls", stalls)
    ended = await carry_out(bench.services, id)
    assert ended is not None
    assert ended.termination_reason == ("completed" if stalls == 2 else "worker_lost")
    if stalls == 3:
        assert (await bench.result(id)).errors[0] == (
            "the worker's event loop was blocked 3 times during this run, the last time in the call of bash; "
            "it is given up"
        )


async def test_a_run_whose_own_processes_end_before_they_begin_is_given_up_with_the_reason(
    bench: Bench, tmp_path: Path
) -> None:
    asked: list[str] = []

    async def start_alone(id: str) -> None:
        asked.append(id)

    bench.services.start_alone = start_alone
    id = await bench.accept(DelegationRequest(task="t", model=script(tmp_path, [say("done")])))
    await bench.store.redis.hset(record_key(id), "stalls", 2)
    while not (await bench.store.get(id)).result:
        await carry_out(bench.services, id)
        await bench.store.redis.hset(record_key(id), "start_due", 0)  # its process had its time
    result = await bench.result(id)
    assert (result.termination_reason, len(asked)) == ("worker_lost", MOST_STARTS)
    assert "3 processes of its own ended before they claimed it: the workers' logs have the reason" in result.summary


async def test_where_no_other_process_can_have_a_workers_tools_a_run_goes_on_beside_others(
    bench: Bench, tmp_path: Path
) -> None:
    asked: list[str] = []

    async def start_alone(id: str) -> None:
        asked.append(id)
        if len(asked) == 2:
            raise Misconfigured("the tools of this worker cannot be passed to another process")

    bench.services.start_alone = start_alone
    id = await bench.accept(DelegationRequest(task="t", model=script(tmp_path, [say("done")])))
    await bench.store.redis.hset(record_key(id), "stalls", 2)
    assert await carry_out(bench.services, id) is None
    assert (await bench.store.get(id)).status is Status.QUEUED, "the other process has claimed nothing"
    await bench.store.redis.hset(record_key(id), "start_due", 0)
    await carry_out(bench.services, id)
    assert (await bench.result(id)).summary == "done"
    assert asked == [id, id]


async def test_workers_lost_in_a_row_end_the_run_and_attempts_counts_what_ran(bench: Bench, tmp_path: Path) -> None:
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, *map(hold, range(3)))))
    for turn in range(3):
        running = await begin(bench, id, turn)
        await bench.lose(id)
        await stop(running)
    assert await resumed(bench, id) == ["the previous attempt lost its worker"] * 2
    outcome, result = await carry_out(bench.services, id), await bench.result(id)
    assert (outcome, result.termination_reason) == (result, "worker_lost")
    assert (result.attempts, result.turn_count, result.tool_call_count) == (3, 3, 3)
    assert result.errors[0] == "3 workers in a row were lost while they carried this out; it is given up"
    events = [envelope.event for envelope in await bench.events(id)]
    started, ended = ([e.step.id for e in events if isinstance(e, kind)] for kind in (StepStarted, StepCompleted))
    assert started == ended
    assert "the worker was lost while this call was under way" in result.errors[-1]


async def test_a_completed_turn_forgives_the_workers_lost_before_it(bench: Bench, tmp_path: Path) -> None:
    look = call("glob", pattern="*")
    model = script(tmp_path, *chain.from_iterable((hold(turn), [look]) for turn in (0, 2, 4, 6)), [say("done")])
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    for turn in (0, 2, 4, 6):
        running = await begin(bench, id, turn)
        await bench.lose(id)
        await stop(running)
        assert await lost_count(bench, id) == "1"
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.attempts) == ("completed", 5)


async def test_the_result_of_a_run_that_is_given_up_has_its_files_steps_and_patch(bench: Bench, tmp_path: Path) -> None:
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, [TWO_LINES], hold(1))))
    running = await begin(bench, id, 1)
    await bench.lose(id)
    await stop(running)
    await bench.store.redis.hset(record_key(id), mapping=dict.fromkeys(("lost", "tried"), bench.settings.max_attempts))
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.files_modified) == ("worker_lost", ["a.txt", "begun-1"])
    assert [(change.change, change.added_lines) for change in result.file_changes] == [("created", 2), ("created", 0)]
    assert "+one" in await bench.store.patch(id)
    assert "1. [turn 1] ✓ " in result.details


async def test_a_resumed_run_that_never_gets_its_parts_still_reports_its_files(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [TWO_LINES], hold(1))
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    await stop(await begin(bench, id, 1))
    Path(model.removeprefix("scripted:")).unlink()  # the next worker cannot open the model
    async with open_bench(bench.settings.redis_url or "", bench.settings.home, name="worker-2") as other:
        await carry_out(other.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.files_modified) == ("model_unavailable", ["a.txt", "begun-1"])
    assert "1. [turn 1] ✓ " in result.details


async def test_files_that_cannot_be_read_are_an_error_and_not_an_empty_list(bench: Bench, tmp_path: Path) -> None:
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, [TWO_LINES], hold(1))))
    await stop(await begin(bench, id, 1))
    await bench.store.redis.hset(record_key(id), mapping=dict.fromkeys(("lost", "tried"), bench.settings.max_attempts))
    async with open_bench(bench.settings.redis_url or "", tmp_path / "elsewhere", name="worker-2") as other:
        await carry_out(other.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.files_modified) == ("worker_lost", [])
    assert "which files changed is not known to worker-2: No such file or directory" in result.errors[1]
    assert result.truncated


async def test_a_run_cancelled_between_two_attempts_reports_what_it_did(bench: Bench, tmp_path: Path) -> None:
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, [TWO_LINES], hold(1))))
    await stop(await begin(bench, id, 1))
    assert await bench.store.cancel(id) == "asked"
    await bench.requeue(id)
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.status, result.files_modified, result.turn_count) == ("cancelled", ["a.txt", "begun-1"], 2)


# Runs that are cancelled, handed over, resumed or given up.


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
    file = bench.settings.workspaces / id / "files" / "a.txt"
    await bench.interrupt(id, lambda: file.exists() and len(file.read_text().splitlines()) == 2)
    assert (await bench.store.get(id)).status == "queued"
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.attempts, result.turn_count) == ("completed", 2, 3)
    assert answered_once(await history_of(bench, result))
    assert "outcome unknown" in json.dumps(await history_of(bench, result))
    assert re.search(r"^2\. \[turn 2\] ✗ .* outcome unknown", result.details, re.MULTILINE)


async def test_an_attempt_that_cannot_see_the_files_of_the_one_before_reports_it(bench: Bench, tmp_path: Path) -> None:
    turns = [[WRITE], [call("bash", command="touch begun; exec sleep 1000")], [say("done")]]
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, *turns)))
    await bench.interrupt(id, (bench.settings.workspaces / id / "files" / "begun").exists)
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
    folder = bench.settings.workspaces / id
    await bench.interrupt(id, (folder / "files" / "begun.txt").exists)
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
    await bench.store.redis.hset(record_key(id), mapping=dict.fromkeys(("lost", "tried"), bench.settings.max_attempts))
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.status, result.termination_reason, result.attempts) == ("failed", "worker_lost", 0)


async def test_a_run_that_lost_its_lease_stops_and_writes_nothing(bench: Bench, tmp_path: Path) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    model = script(tmp_path, [WRITE], {"blocks": [WRITE], "delay": 0.3}, [say("never")])
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    running = asyncio.create_task(carry_out(bench.services, id))
    file = bench.settings.workspaces / id / "files" / "a.txt"
    await until(file.exists)
    await bench.store.redis.hset(record_key(id), "fence", "9:other")
    seen = len(await bench.events(id))
    assert await asyncio.wait_for(running, 30) is None
    del running
    gc.collect()
    assert reported == []  # such as an exception that was never retrieved
    assert len(await bench.events(id)) == seen
    assert (await bench.store.get(id)).result is None
    await bench.store.redis.delete(record_key(id), f"{record_key(id)}:events", history_key(id), ledger_key(id), LEASES)


async def test_a_run_whose_writes_redis_has_lost_stops_and_the_next_attempt_settles_what_it_did(
    bench: Bench, tmp_path: Path
) -> None:
    """As after a restart with an older state, or when a replica that lagged took over."""
    steps = [f"echo {n} >> log; until [ -e go{n} ]; do :; done" for n in (1, 2)]
    model = script(tmp_path, *([call("bash", command=step)] for step in steps), [say("done")])
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    running = asyncio.create_task(carry_out(bench.services, id))
    files = bench.settings.workspaces / id / "files"
    redis = Redis.from_url(bench.settings.redis_url or "")  # the dumps are bytes

    def logged() -> str:
        return (files / "log").read_text() if (files / "log").exists() else ""

    await until(lambda: logged() == "1\n")
    older = {key: await redis.dump(key) for key in [LEASES, *await redis.keys(f"*{id}*")]}
    (files / "go1").touch()
    await until(lambda: logged() == "1\n2\n")
    for key, dump in older.items():
        await redis.restore(key, 0, dump or b"", replace=True)
    (files / "go2").touch()
    assert await asyncio.wait_for(running, 30) is None
    requeued = (await bench.store.get(id)).status is Status.QUEUED  # the older lease may lapse before it is ended
    assert requeued or await redis.zscore(LEASES, id) == 0
    await bench.store.reap(60)
    await asyncio.wait_for(carry_out(bench.services, id), 30)
    await redis.aclose()
    result = await bench.result(id)
    assert (result.termination_reason, result.attempts) == ("completed", 2)
    assert (files.with_name("files.2") / "log").read_text() == "1\n2\n"
    assert "outcome unknown: this call had begun before Redis lost its records" in result.details
