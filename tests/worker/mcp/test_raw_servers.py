"""A server that is a program in the sandbox: what it sees, what it offers and answers, and how it fails."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest

from deputize.shared.errors import ErrorType
from deputize.shared.request import ApprovalMode
from deputize.worker.mcp.tools import McpTool
from deputize.worker.policy import PolicyCall, PolicyContext, decide
from deputize.worker.policy.base import Decision
from deputize.worker.sandbox.environment import OFFLINE, VARIABLES
from deputize.worker.toolkit.registry import Registry
from deputize.worker.tools.base import Effect, Kind, Origin
from deputize.worker.tools.context import Touches
from tests.runs.toolbench import Toolbench
from tests.waiting import until
from tests.worker.mcp.opening import Opened, command_of, opened, started
from tests.worker.mcp.servers import SERVERS, raw

pytestmark = pytest.mark.usefixtures("look_around")  # which processes are ours


@pytest.mark.requirement("S000-103", "S004-022", "S004-030", "S002-043")
async def test_a_call_goes_to_the_server_whose_tool_it_is(desk: Toolbench) -> None:
    servers = {"one": raw(), "the other": raw("greet"), "off": {**raw(), "disabled": True}}
    async with opened(desk, servers) as found:
        assert found.warnings == []
        one, other = found.tools["mcp__one__echo"], found.tools["mcp__the_other__echo"]
        assert one.origin == Origin("mcp", "one", "echo")
        assert other.origin == Origin("mcp", "the other", "echo")
        of_server = Registry(found.tools.values()).of_server("the other")
        assert [tool.name for tool in of_server] == [
            name for name in found.tools if name.startswith("mcp__the_other__")
        ]
        assert (await found.call("mcp__the_other__echo", text="hello")).content == "hello"
        assert json.loads((await found.call("mcp__one__environ")).content)["PWD"].startswith("/workspace")
        assert (await found.call("mcp__the_other__environ")).data["argv"] == ["greet"]
        assert not any("off" in name for name in found.tools)
    await until(lambda: started() == set())


@pytest.mark.requirement("P-17")
async def test_a_server_gets_no_variable_but_those_that_are_named(desk: Toolbench) -> None:
    entry = raw(env={"KEY": "${SECRET_KEY}", "PLAIN": "as it is"})
    worker = {"PATH": os.environ["PATH"], "SECRET_KEY": "s3cret!", "OTHER_KEY": "other", "HOME": "/root"}
    async with opened(desk, {"raw": entry}, environ=worker) as found:
        environ = json.loads((await found.call("mcp__raw__environ")).content)
    assert (environ["KEY"], environ["PLAIN"]) == ("s3cret!", "as it is")
    assert set(environ) - {"KEY", "PLAIN", *VARIABLES, *OFFLINE} <= {"PATH", "PWD", "LC_CTYPE", "_", "SHLVL"}
    assert environ["HOME"] != "/root"


async def test_the_annotations_of_a_tool_become_its_kind_and_effect(server: Opened) -> None:
    found = {name.removeprefix("mcp__raw__"): (tool.kind, tool.effect) for name, tool in server.tools.items()}
    assert found["echo"] == (Kind.READ, Effect.PURE)
    assert found["die_once"] == (Kind.OTHER, Effect.IDEMPOTENT)
    assert found["die"] == (Kind.OTHER, Effect.EFFECTFUL)
    assert server.tools["mcp__raw__echo"].description == "Does echo."
    assert server.tools["mcp__raw__echo"].title({}) == "raw: echo"


@pytest.mark.requirement("S000-024")
async def test_a_tool_whose_schema_is_none_is_left_out_and_its_server_is_not(desk: Toolbench) -> None:
    async with opened(desk, {"raw": raw("unusable")}) as found:
        (warning,) = found.warnings
        assert warning.startswith("the tool 'unusable' of the MCP server 'raw' is left out: ")
        assert "not a valid JSON Schema" in warning
        assert "mcp__raw__unusable" not in found.tools
        assert "mcp__raw__echo" in found.tools


async def test_what_declares_that_it_only_reads_is_free_and_all_else_is_asked_about(desk: Toolbench) -> None:
    """Also where the server runs in the sandbox, unless the operator trusts it."""
    async with opened(desk, {"raw": raw(), "trusted": raw(trust=["die*"])}) as found:

        def verdict(name: str, mode: ApprovalMode) -> Decision:
            return decide(PolicyCall(found.tools[name], Touches()), PolicyContext(mode)).decision

        for mode in (ApprovalMode.ASK, ApprovalMode.SANDBOXED):
            assert verdict("mcp__raw__echo", mode) is Decision.ALLOW
            assert verdict("mcp__raw__die", mode) is Decision.ASK
            assert verdict("mcp__raw__die_once", mode) is Decision.ASK
            assert verdict("mcp__trusted__die", mode) is Decision.ALLOW
            assert verdict("mcp__trusted__babble", mode) is Decision.ASK
        assert verdict("mcp__raw__die", ApprovalMode.AUTO) is Decision.ALLOW
        assert verdict("mcp__trusted__die", ApprovalMode.READ_ONLY) is Decision.DENY
        assert verdict("mcp__raw__echo", ApprovalMode.READ_ONLY) is Decision.ALLOW


async def test_of_two_hundred_tools_each_has_a_name_of_its_own(desk: Toolbench) -> None:
    async with opened(desk, {"raw": raw("many", tools={"deny": ["tool 1?"]})}) as found:
        assert found.warnings == []
        assert len(found.tools) == 192
        assert all(len(name) <= 64 for name in found.tools)
        by_remote = {tool.origin.remote: name for name, tool in found.tools.items()}
        assert by_remote["tool 7"] == "mcp__raw__tool_7"
        assert by_remote["tool.7"].startswith("mcp__raw__tool_7_")
        assert "tool 11" not in by_remote


async def test_only_wanted_tools_are_there_and_only_wanted_servers_are_started(desk: Toolbench) -> None:
    servers = {"one": raw(tools={"allow": ["echo", "die*"]}), "two": raw()}
    async with opened(desk, servers, patterns=["mcp__one__*"]) as found:
        assert [tool.origin.remote for tool in found.tools.values()] == ["echo", "die", "die once"]
        assert found.warnings == []
    assert found.notes() == ["ended by itself"]
    async with opened(desk, {"deaf": raw("deaf")}, patterns=["read_file", "g*"]) as found:
        assert (found.tools, found.warnings) == ({}, [])


async def test_a_server_may_run_as_long_as_its_run(server: Opened) -> None:
    assert any(b"timeout\0--signal=KILL\x000\0" in command_of(pid) for pid in started())


async def test_arguments_are_checked_before_the_server_sees_them(server: Opened) -> None:
    result = await server.call("mcp__raw__echo", text=3)
    assert result.error_type is ErrorType.INVALID_TOOL_PARAMS
    assert server.notes() == []


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("refuse", "the moon is in the wrong phase"),
        ("break_the_protocol", "the protocol does not allow its answer"),
        ("say_too_much", "outcome unknown"),
    ],
)
async def test_whatever_a_server_answers_the_model_gets_words(server: Opened, tool: str, said: str) -> None:
    result = await server.call(f"mcp__raw__{tool}")
    assert result.error_type is ErrorType.EXECUTION_FAILED
    assert result.error is not None
    assert said in result.error
    assert "the MCP server 'raw'" in result.error
    assert (await server.call("mcp__raw__echo", text="on")).content == "on"


async def test_what_is_no_message_is_overheard(server: Opened) -> None:
    assert (await server.call("mcp__raw__babble")).content == "done babbling"


async def test_a_result_that_breaks_its_own_promise_is_still_a_result(server: Opened) -> None:
    result = await server.call("mcp__raw__promise_a_number")
    assert (result.content, result.data) == ('{"n": "no number"}', {"n": "no number"})


async def test_a_long_answer_is_cut_and_kept_whole_like_any_other(server: Opened) -> None:
    result = await server.call("mcp__raw__say_much")
    assert len(result.content) < 9000
    assert len(server.desk.read(result.metadata["fullOutput"])) == 200_000


# misbehaviour


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
async def test_a_server_that_does_not_answer_is_not_waited_for_longer_than_configured(desk: Toolbench) -> None:
    async with opened(desk, {"deaf": raw("deaf")}, seconds=1) as found:
        warning, nothing = found.warnings
        assert "the MCP server 'deaf' is left out: it did not answer within 1 seconds" in warning
        assert nothing == "No available MCP tools found"
    await until(lambda: started() == set())


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
    """No one can have seen the second call before it was made, so it is made although it may not be repeated."""
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


@pytest.mark.requirement("P-15")
async def test_a_cancelled_call_is_cancelled_at_the_server(server: Opened) -> None:
    call = asyncio.create_task(server.call("mcp__raw__wait"))
    await until(lambda: server.desk.news)
    assert server.desk.news == [(None, {"progress": 1.0, "total": 3.0, "message": "a third"})]
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: server.notes() == ["cancelled"])
    assert (await server.call("mcp__raw__echo", text="next")).content == "next"


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
    await until(lambda: started() == set())


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


async def test_a_call_may_take_no_longer_than_the_file_allows_whatever_it_reports(desk: Toolbench) -> None:
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


async def test_a_server_is_waited_for_as_long_as_its_own_entry_allows(desk: Toolbench) -> None:
    servers = {"deaf": raw("deaf", connectSeconds=1), "raw": raw(connectSeconds=60)}
    async with asyncio.timeout(15), opened(desk, servers, seconds=0.001) as found:
        assert "it did not answer within 1 seconds" in found.warnings[0]
        assert "mcp__raw__echo" in found.tools


async def test_patterns_that_fit_no_tool_are_reported(desk: Toolbench) -> None:
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
