"""Servers that fail, and how long each one is waited for."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from deputize.shared.errors import ErrorType
from deputize.worker.mcp.tools import McpTool
from tests.toolbench import Toolbench
from tests.waiting import until
from tests.worker.mcp.opening import Opened, command_of, opened, started
from tests.worker.mcp.servers import SERVERS, raw

# misbehaviour

pytestmark = pytest.mark.usefixtures("look_around")  # which processes are ours


@pytest.mark.requirement("S000-024")
async def test_a_server_that_cannot_be_had_is_warned_of_and_costs_the_others_nothing(desk: Toolbench) -> None:
    servers = {
        "dead": raw("die"),
        "absent": {"command": "no-such-program"},
        "keyless": raw(env={"KEY": "${NO_SUCH_KEY}"}),
        "good": raw(),
        "nonsense": raw("nonsense"),
    }
    async with opened(desk, servers) as found:
        said = {name: next((w for w in found.warnings if f"'{name}'" in w), "") for name in servers}
        assert (await found.call("mcp__good__echo", text="still here")).content == "still here"
    assert "its stderr: raw: no licence found" in said["dead"]
    assert "no-such-program" in said["absent"]
    assert "the variable NO_SUCH_KEY is not set" in said["keyless"]
    assert said["nonsense"]
    assert set(found.missing) == {"mcp__dead__", "mcp__absent__", "mcp__keyless__", "mcp__nonsense__"}


@pytest.mark.requirement("S000-024")
async def test_a_server_that_does_not_answer_is_not_waited_for_longer_than_said(desk: Toolbench) -> None:
    async with opened(desk, {"deaf": raw("deaf")}, seconds=1) as found:
        warning, nothing = found.warnings
        assert "the MCP server 'deaf' is left out: it did not answer within 1 seconds" in warning
        assert nothing == "No available MCP tools found"
    assert started() == set()


async def test_a_server_that_dies_in_a_call_leaves_it_in_doubt_and_is_there_for_the_next(server: Opened) -> None:
    result = await server.call("mcp__raw__die")
    assert result.error is not None
    assert "outcome unknown" in result.error
    assert "look before you repeat it" in result.error
    assert (await server.call("mcp__raw__echo", text="again")).content == "again"
    assert server.notes() == ["die", "echo"]


async def test_a_call_that_may_be_repeated_is_made_again_once(server: Opened) -> None:
    assert (await server.call("mcp__raw__die_once")).content == "alive again"
    assert server.notes() == ["die once", "die once"]


async def test_a_server_that_was_killed_between_two_calls_is_started_again(server: Opened) -> None:
    """Nobody can have seen the second call before it was made, so it is made although it may not be repeated."""
    await server.call("mcp__raw__echo", text="first")
    (victim,) = [pid for pid in started() if command_of(pid).partition(b"\0")[0].endswith(b"/python3")]
    os.kill(victim, signal.SIGKILL)
    tool = server.tools["mcp__raw__babble"]
    assert isinstance(tool, McpTool)
    await until(lambda: not tool._link.alive)
    assert (await server.call("mcp__raw__babble")).content == "done babbling"


async def test_silence_ends_a_call(desk: Toolbench) -> None:
    async with opened(desk, {"raw": raw(idleSeconds=0.2)}) as found:
        result = await found.call("mcp__raw__say_nothing")
    assert result.error_type is ErrorType.TIMEOUT
    assert result.error is not None
    assert "it sent nothing for 0.2 seconds" in result.error


# nothing stays


async def test_a_server_ends_with_the_run_and_so_does_what_it_left(desk: Toolbench) -> None:
    async with opened(desk, {"raw": raw()}) as found:
        await found.call("mcp__raw__leave_a_child")
        await until(lambda: [pid for pid in started() if b"sleep\x001000" in command_of(pid)])
    assert found.notes()[-1] == "ended by itself"
    await until(lambda: not started())  # measuring may take a moment longer


async def test_a_call_after_the_run_starts_nothing(desk: Toolbench) -> None:
    async with opened(desk, {"raw": raw()}) as found:
        pass
    assert "the run that used it is over" in ((await found.call("mcp__raw__echo", text="late")).error or "")
    assert started() == set()


async def test_a_server_that_does_not_end_by_itself_is_killed_and_named(desk: Toolbench) -> None:
    with pytest.raises(RuntimeError, match="the run fails"):
        async with opened(desk, {"sleepy": {"command": "sh", "args": ["-c", "exec sleep 1000"]}}, seconds=1):
            raise RuntimeError("the run fails")
    assert desk.sandbox.reaped == ["sleep 1000"]
    await until(lambda: started() == set())  # measuring may take a moment longer


async def test_cancelled_while_it_connects_nothing_stays(desk: Toolbench) -> None:
    async def connect() -> None:
        async with opened(desk, {"deaf": raw("deaf"), "good": raw()}):
            raise AssertionError("it cannot come so far")

    connecting = asyncio.create_task(connect())
    await until(started)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await until(lambda: started() == set())


async def test_a_server_in_the_sandbox_is_bounded_with_the_commands_of_its_run(server: Opened) -> None:
    bounds = server.desk.sandbox.bounds
    assert bounds is not None
    (member,) = bounds.members
    assert str(SERVERS / "raw.py").encode() in command_of(member.init)
    bounds.kill_largest_writer("the commands of this run used too much")
    assert "Connection closed" in ((await server.call("mcp__raw__wait")).error or "")


async def test_news_put_off_the_end_of_a_call(desk: Toolbench) -> None:
    async with opened(desk, {"raw": raw(idleSeconds=1)}) as found:
        assert (await found.call("mcp__raw__tick", times=25)).content == "ticked"


async def test_a_call_may_take_no_longer_than_the_file_says_whatever_it_reports(desk: Toolbench) -> None:
    async with opened(desk, {"raw": raw(callSeconds=0.5)}) as found:
        result = await found.call("mcp__raw__tick", times=1000)
    assert result.error_type is ErrorType.TIMEOUT
    assert "it took more than 0.5 seconds" in (result.error or "")


async def test_a_server_that_does_not_list_its_tools_is_not_waited_for(desk: Toolbench) -> None:
    async with asyncio.timeout(20), opened(desk, {"mute": raw("mute"), "raw": raw()}, seconds=3) as found:
        assert found.notes()[0] == "asked for its tools"
        assert found.missing == ["mcp__mute__"]
        assert "it did not list its tools within" in found.warnings[0]
        assert "mcp__raw__echo" in found.tools


async def test_a_server_is_waited_for_as_long_as_its_own_entry_says(desk: Toolbench) -> None:
    servers = {"deaf": raw("deaf", connectSeconds=1), "raw": raw(connectSeconds=60)}
    async with asyncio.timeout(15), opened(desk, servers, seconds=0.001) as found:
        assert "it did not answer within 1 seconds" in found.warnings[0]
        assert "mcp__raw__echo" in found.tools


async def test_patterns_that_fit_no_tool_are_told_of(desk: Toolbench) -> None:
    servers = {"raw": raw(includeTools=["eco", "say*"], excludeTools=["say mch"], trust=["di"], timeot=3, envFile="x")}
    async with opened(desk, servers) as found:
        assert [*found.tools] == [f"mcp__raw__say_{what}" for what in ("much", "too_much", "nothing")]
    for said in (
        "list of allowed tools names 'eco', which is none of its tools; did you mean 'echo'?",
        "list of denied tools names 'say mch', which is none of its tools; did you mean 'say much'?",
        "trust names 'di', which is none of its tools; did you mean 'die'?",
        "its key timeot is not known and has no effect; did you mean timeout?",
        "its key envFile is not known and has no effect; did you mean env?",
    ):
        assert len([warning for warning in found.warnings if said in warning]) == 1, said
    assert len(found.warnings) == 5
