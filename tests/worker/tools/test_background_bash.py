"""bash in the background: how a command is started there."""

from __future__ import annotations

import re

import pytest

from deputize.shared.errors import ErrorType
from deputize.worker.linux.tree import command_line
from deputize.worker.sandbox.shells import MAX_SHELLS
from tests.toolbench import Toolbench
from tests.waiting import until
from tests.worker.tools.background_shells import has_ended, output, shell_of, start


@pytest.mark.requirement("S000-061", "S000-064", "S000-066", "S000-069", "S000-070", "S000-071", "S000-072")
async def test_a_background_start_answers_at_once_with_the_id(desk: Toolbench) -> None:
    result = await desk.call("bash", command="sleep 1000; echo never", run_in_background=True)
    id = result.metadata["bashId"]
    assert re.fullmatch("[0-9a-f]{8}", id)
    assert (result.success, result.error) == (True, None)
    assert result.content == (
        f"Command started in background. Use bash_output to monitor (bash_id='{id}').\n\n"
        f"Command: sleep 1000; echo never\nBash ID: {id}"
    )
    assert result.title == "$ sleep 1000; echo never &"
    assert result.metadata == {
        "exitCode": 0,
        "stdout": f"Background command started with ID: {id}",
        "stderr": "",
        "bashId": id,
    }
    assert shell_of(desk, id).running


@pytest.mark.requirement("S000-070")
async def test_a_foreground_command_has_the_same_facts(desk: Toolbench) -> None:
    facts = (await desk.call("bash", command="echo out; echo err >&2; exit 3")).metadata
    assert (facts["exitCode"], facts["stdout"], facts["stderr"], facts["bashId"]) == (3, "out\n", "err\n", None)


@pytest.mark.requirement("S000-067", "S000-068")
async def test_the_run_knows_its_shells(desk: Toolbench) -> None:
    id = await start(desk, "sleep 1000")
    shell = shell_of(desk, id)
    assert (shell.bash_id, shell.command, shell.process.ended.done()) == (id, "sleep 1000", False)
    assert shell.start_time.tzinfo is not None
    assert [each.bash_id for each in desk.sandbox.shells] == [id]


@pytest.mark.requirement("S000-061")
async def test_a_command_runs_in_the_foreground_unless_it_is_asked_otherwise(desk: Toolbench) -> None:
    assert (await desk.call("bash", command="echo here")).content == "here"
    assert (await desk.call("bash", command="echo here", run_in_background=False)).content == "here"
    assert [*desk.sandbox.shells] == []


async def test_a_background_command_outlives_the_timeout(desk: Toolbench) -> None:
    shell = shell_of(desk, await start(desk, "sleep 1000", timeout=1))
    assert shell.running
    await until(lambda: "timeout --signal=KILL 86410 " in command_line(shell.process.pid))


async def test_there_may_be_eight_and_a_read_one_that_ended_makes_room(desk: Toolbench) -> None:
    ids = [await start(desk, "sleep 1000") for _ in range(MAX_SHELLS - 1)]
    ended = await start(desk, "echo done")
    await has_ended(desk, ended)
    refused = await desk.call("bash", command="echo one too many", run_in_background=True)
    assert refused.error_type is ErrorType.LIMIT_REACHED
    assert f"there may be 8 background shells at once. There are: {ids[0]} (running: sleep 1000)" in refused.for_model
    assert "End one with bash_kill, or read one that has ended with bash_output." in refused.for_model
    await output(desk, ended)
    await start(desk, "sleep 1000")


async def test_where_commands_cannot_run_none_is_started(bare_desk: Toolbench) -> None:
    result = await bare_desk.call("bash", command="touch ran", run_in_background=True)
    assert result.error_type is ErrorType.SANDBOX_UNAVAILABLE
    assert "there is no background shell" in (await output(bare_desk, "00000000")).for_model
