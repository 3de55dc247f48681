"""Runs that work with background shells: real Redis, real files, real sandbox, a scripted model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.events import StepCompleted
from deputize.shared.request import DelegationRequest
from deputize.worker.task import carry_out
from tests.runs.bench import Bench, call, say, script
from tests.waiting import until

ID = r"{{result:1 /Bash ID: (\w+)/}}"


def background(command: str) -> dict[str, Any]:
    return call("bash", command=command, run_in_background=True)


def ended_with_it(result: ToolAgentResult, command: str) -> bool:
    """Whether just this had to be ended; a shell that has not come to its exec yet is called by its own name."""
    return len(result.reaped) == 1 and command in result.reaped[0]


async def first_step(bench: Bench, id: str) -> StepCompleted:
    return (await until(lambda: bench.seen(id, StepCompleted), timeout=20))[0]


@pytest.mark.requirement("S000-072", "S000-084", "S000-066")
async def test_a_model_starts_reads_and_ends_a_shell(bench: Bench, tmp_path: Path) -> None:
    # A signal just before ``read`` blocks would wait for its line; between two commands it never waits.
    serving = "trap 'echo down; exit' TERM; echo up; while :; do sleep 0.05; done"
    turns = [
        [background(serving), call("bash", command="echo meanwhile")],
        [call("bash_output", bash_id=ID)],
        [call("bash_kill", bash_id=ID)],
        [call("bash_output", bash_id=ID)],
        [say("done")],
    ]
    result = await bench.run(model=script(tmp_path, *turns))
    started, meanwhile, seen, ended, gone = await bench.answers(result.delegation_id)
    assert started.startswith("Command started in background.")
    assert meanwhile == "meanwhile"
    assert seen.startswith("up\n[bash_id: ")
    assert "down\n[bash_id: " in ended  # bash may report the end of its sleep before
    assert "status: terminated" in ended
    assert "is gone: bash_kill ended it" in gone
    assert (result.termination_reason, result.tool_call_count, result.reaped) == ("completed", 5, [])


@pytest.mark.requirement("P-18", "S000-084")
async def test_a_shell_that_still_runs_when_its_run_ends_is_ended_and_named(bench: Bench, tmp_path: Path) -> None:
    """``nothing_left_behind`` sees that it is gone; what it had done until then is in the result."""
    working = "echo made > made.txt; echo ready; exec sleep 1234"
    turns = [[background(working)], [call("bash_output", bash_id=ID)], [say("done")]]
    result = await bench.run(model=script(tmp_path, *turns))
    assert (result.termination_reason, result.files_modified) == ("completed", ["made.txt"])
    assert ended_with_it(result, "sleep 1234")


@pytest.mark.requirement("P-18", "P-15")
async def test_cancelling_ends_the_shells_too(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [background("echo made > made.txt; exec sleep 1234")], {"blocks": [], "delay": 1000})
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    running = asyncio.create_task(carry_out(bench.services, id))
    await until((bench.settings.workspaces / id / "files" / "made.txt").exists, timeout=20)
    await bench.store.cancel(id)
    async with asyncio.timeout(20):
        await running
    result = await bench.result(id)
    assert (result.status, result.files_modified) == ("cancelled", ["made.txt"])
    assert ended_with_it(result, "sleep 1234")


@pytest.mark.requirement("P-18", "P-07")
async def test_a_run_out_of_time_ends_its_shells(bench: Bench, tmp_path: Path) -> None:
    model = script(
        tmp_path, [background("exec sleep 1234")], {"blocks": [say("never")], "delay": 1000}, summary="Late."
    )
    result = await bench.run(model=model, limits={"timeout_seconds": 2})
    assert (result.termination_reason, result.summary) == ("timeout", "Late.")
    assert ended_with_it(result, "sleep 1234")


async def test_looking_again_and_again_is_no_going_in_circles(bench: Bench, tmp_path: Path) -> None:
    ticking = "while :; do echo tick; sleep 0.02; done"
    look = {"blocks": [call("bash_output", bash_id=ID)], "repeat": 8}
    result = await bench.run(model=script(tmp_path, [background(ticking)], look, [say("done")]))
    assert (result.termination_reason, result.tool_call_count) == ("completed", 9)
    assert all("tick\n" in each for each in (await bench.answers(result.delegation_id))[1:])


@pytest.mark.requirement("P-03")
async def test_two_runs_at_once_do_not_see_each_others_shells(bench: Bench, tmp_path: Path) -> None:
    waiting = script(tmp_path, [background("exec sleep 1234")], {"blocks": [], "delay": 1000})
    id = await bench.accept(DelegationRequest(task="do it", model=waiting))
    running = asyncio.create_task(carry_out(bench.services, id))
    text = (await first_step(bench, id)).step.result or ""
    theirs = text.rpartition("Bash ID: ")[2]
    calls = [call("bash_output", bash_id=theirs), call("bash_kill", bash_id=theirs)]
    mine = [[background("echo up; exec sleep 5678")], [call("bash_output", bash_id=ID), *calls], [say("done")]]
    other = await bench.run(model=script(tmp_path, *mine))
    _, _, looked, killed = await bench.answers(other.delegation_id)
    for answer in (looked, killed):
        assert answer.startswith(f"Error: there is no background shell '{theirs}'. There are: ")
    assert ended_with_it(other, "sleep 5678")
    await bench.store.cancel(id)
    await running
    assert ended_with_it(await bench.result(id), "sleep 1234")


@pytest.mark.requirement("P-16")
async def test_the_next_attempt_knows_that_the_shells_are_lost(bench: Bench, tmp_path: Path) -> None:
    turns = [
        [background("echo up; exec sleep 1234")],
        [call("bash", command="touch begun; exec sleep 1000")],
        [call("bash_output", bash_id=ID), background("echo again")],
        [say("done")],
    ]
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, *turns)))
    await bench.interrupt(id, (bench.settings.workspaces / id / "files" / "begun").exists, 20)
    await carry_out(bench.services, id)
    _, blocked, lost, again = await bench.answers(id)
    assert "outcome unknown" in blocked
    assert "ended when the run was interrupted" in lost
    assert "start it again with bash" in lost
    assert again.startswith("Command started in background.")
    result = await bench.result(id)
    assert (result.termination_reason, result.attempts) == ("completed", 2)


@pytest.mark.requirement("P-20")
async def test_a_build_is_polled_for_as_long_as_it_goes_on(bench: Bench, tmp_path: Path) -> None:
    building, wait = "while sleep 0.05; do echo building; done", call("bash", command="sleep 0.1")
    turns = [[background(building)], *[[call("bash_output", bash_id=ID)], [wait]] * 7, [say("done")]]
    result = await bench.run(model=script(tmp_path, *turns))
    assert (result.termination_reason, result.tool_call_count) == ("completed", 15)


@pytest.mark.long
@pytest.mark.requirement("P-20")
async def test_a_command_that_waits_for_a_build_is_no_loop_until_that_has_ended(bench: Bench, tmp_path: Path) -> None:
    wait = call("bash", command="sleep 1.01")
    building = call("bash", command="while [ ! -e enough ]; do sleep 0.05; done", run_in_background=True)
    again = [call("bash", command="ls -A enough")]
    turns = [[building], *[[wait]] * 5, [call("write_file", path="enough", content="")], *[again] * 15]
    result = await bench.run(model=script(tmp_path, *turns, summary="In circles."))
    assert (result.termination_reason, result.tool_call_count) == ("loop_detected", 17)
