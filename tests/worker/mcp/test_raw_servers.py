"""A server that is a program in the sandbox: what it sees, how it may misbehave, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.delegation import ApprovalMode
from shared.errors import ErrorType
from tests.leaks import ROOT, descendants
from tests.toolbench import Toolbench, bare_desk, desk
from tests.waiting import until, until_sync
from tests.worker.mcp.entries import raw
from tests.worker.mcp.opening import Opened, opened
from worker.policy import PolicyCall, PolicyContext, decide
from worker.policy.base import Decision
from worker.sandbox.base import NoSandbox
from worker.toolkit.registry import Registry
from worker.tools.base import Effect, Kind
from worker.tools.context import Touches

__all__ = ["bare_desk", "desk"]

_there_before = set[int]()


@pytest.fixture(autouse=True)
def _look_around() -> None:
    """Other tests' servers, such as Redis, stay up for the whole session."""
    _there_before.clear()
    _there_before.update(descendants())


def started() -> set[int]:
    """The processes that this test has started and that are not yet gone."""
    return descendants() - _there_before


@pytest.fixture
async def server(desk: Toolbench) -> AsyncIterator[Opened]:
    """The raw server behind its tools, which are called ``mcp__raw__…``."""
    async with opened(desk, {"raw": raw()}) as found:
        yield found


@pytest.mark.requirement("S000-103", "S004-022", "S004-030", "S002-043")
async def test_a_call_goes_to_the_server_whose_tool_it_is(desk: Toolbench) -> None:
    servers = {"one": raw(), "the other": raw("greet"), "off": {**raw(), "disabled": True}}
    async with opened(desk, servers) as found:
        assert found.warnings == []
        one, other = found.tools["mcp__one__echo"], found.tools["mcp__the_other__echo"]
        assert (one.source, one.server, one.remote) == ("mcp", "one", "echo")
        assert (other.server, other.remote) == ("the other", "echo")
        of_server = Registry(found.tools.values()).of_server("the other")
        assert [tool.name for tool in of_server] == [
            name for name in found.tools if name.startswith("mcp__the_other__")
        ]
        assert (await found.call("mcp__the_other__echo", text="hello")).content == "hello"
        assert json.loads((await found.call("mcp__one__environ")).content)["PWD"].startswith("/workspace")
        assert (await found.call("mcp__the_other__environ")).data["argv"] == ["greet"]
        assert not any("off" in name for name in found.tools)
    assert started() == set()


@pytest.mark.requirement("P-17")
async def test_a_server_gets_no_variable_but_those_that_are_named(desk: Toolbench) -> None:
    entry = raw(env={"KEY": "${SECRET_KEY}", "PLAIN": "as it is"})
    worker = {"PATH": os.environ["PATH"], "SECRET_KEY": "s3cret!", "OTHER_KEY": "other", "HOME": "/root"}
    async with opened(desk, {"raw": entry}, environ=worker) as found:
        environ = json.loads((await found.call("mcp__raw__environ")).content)
    assert (environ["KEY"], environ["PLAIN"]) == ("s3cret!", "as it is")
    assert set(environ) - {"KEY", "PLAIN"} <= {"PATH", "HOME", "USER", "LANG", "TERM", "PWD", "LC_CTYPE", "_", "SHLVL"}
    assert environ["HOME"] != "/root"


async def test_what_a_tool_says_of_itself_becomes_its_kind_and_effect(server: Opened) -> None:
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


async def test_what_says_that_it_only_reads_is_free_and_all_else_is_asked_about(desk: Toolbench) -> None:
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
        by_remote = {tool.remote: name for name, tool in found.tools.items()}
        assert by_remote["tool 7"] == "mcp__raw__tool_7"
        assert by_remote["tool.7"].startswith("mcp__raw__tool_7_")
        assert "tool 11" not in by_remote


async def test_only_wanted_tools_are_there_and_only_wanted_servers_are_started(desk: Toolbench) -> None:
    servers = {"one": raw(tools={"allow": ["echo", "die*"]}), "two": raw()}
    async with opened(desk, servers, patterns=["mcp__one__*"]) as found:
        assert [tool.remote for tool in found.tools.values()] == ["echo", "die", "die once"]
        assert found.warnings == []
    assert found.notes() == ["ended by itself"]
    async with opened(desk, {"deaf": raw("deaf")}, patterns=["read_file", "g*"]) as found:
        assert (found.tools, found.warnings) == ({}, [])


async def test_arguments_are_checked_before_the_server_sees_them(server: Opened) -> None:
    result = await server.call("mcp__raw__echo", text=3)
    assert result.error_type is ErrorType.INVALID_TOOL_PARAMS
    assert server.notes() == []


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
    (victim,) = [pid for pid in started() if _command(pid).partition(b"\0")[0].endswith(b"/python3")]
    os.kill(victim, signal.SIGKILL)
    await until(lambda: not server.tools["mcp__raw__babble"]._link.alive)  # type: ignore[attr-defined]
    assert (await server.call("mcp__raw__babble")).content == "done babbling"


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("refuse", "the moon is in the wrong phase"),
        ("break_the_protocol", "its answer is not what the protocol allows"),
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


async def test_silence_ends_a_call(desk: Toolbench) -> None:
    async with opened(desk, {"raw": raw(idleSeconds=0.2)}) as found:
        result = await found.call("mcp__raw__say_nothing")
    assert result.error_type is ErrorType.TIMEOUT
    assert result.error is not None
    assert "it sent nothing for 0.2 seconds" in result.error


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


# nothing stays


async def test_a_server_ends_with_the_run_and_so_does_what_it_left(desk: Toolbench) -> None:
    async with opened(desk, {"raw": raw()}) as found:
        await found.call("mcp__raw__leave_a_child")
        await until(lambda: [pid for pid in started() if b"sleep\x001000" in _command(pid)])
    assert found.notes()[-1] == "ended by itself"
    assert started() == set()


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
    assert started() == set()


async def test_cancelled_while_it_connects_nothing_stays(desk: Toolbench) -> None:
    async def connect() -> None:
        async with opened(desk, {"deaf": raw("deaf"), "good": raw()}):
            raise AssertionError("it cannot come so far")

    connecting = asyncio.create_task(connect())
    await until(started)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert started() == set()


# outside of the sandbox


async def test_where_commands_cannot_run_no_server_runs_unprotected(bare_desk: Toolbench) -> None:
    async with opened(bare_desk, {"raw": raw()}) as found:
        assert isinstance(bare_desk.sandbox, NoSandbox)
        assert "it would run in the sandbox, and this test has no sandbox" in found.warnings[0]
        assert found.tools == {}


async def test_a_server_outside_the_sandbox_is_the_operators_decision(bare_desk: Toolbench) -> None:
    entry = raw(sandbox=False, env={"KEY": "${SECRET_KEY}"})
    worker = {"PATH": os.environ["PATH"], "SECRET_KEY": "s3cret!", "OTHER_KEY": "other", "HOME": "/nowhere"}
    async with opened(bare_desk, {"raw": entry}, environ=worker) as found:
        assert found.warnings == []
        result = await found.call("mcp__raw__environ")
        assert result.data["cwd"] == str(bare_desk.root)
        environ = json.loads(result.content)
        assert (environ["KEY"], environ["HOME"]) == ("s3cret!", "/nowhere")
        assert "OTHER_KEY" not in environ
        await found.call("mcp__raw__leave_a_child")
        result = await found.call("mcp__raw__die")
        assert "outcome unknown" in (result.error or "")
        assert (await found.call("mcp__raw__echo", text="again")).content == "again"
    assert started() == set()


@pytest.mark.parametrize("dies", [False, True])
async def test_what_a_server_outside_has_detached_ends_with_it(bare_desk: Toolbench, dies: bool) -> None:
    async with opened(bare_desk, {"raw": raw(sandbox=False)}) as found:
        await found.call("mcp__raw__leave_a_child")
        await until(lambda: {b"sleep\x002000\x00", b"sleep\x003000\x00"} <= {_command(pid) for pid in started()})
        if dies:
            (server,) = [pid for pid in started() if b"raw.py" in _command(pid)]
            os.kill(server, signal.SIGKILL)
            await until(lambda: started() == set())
    assert started() == set()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"cwd": "no/such"}, "it cannot be started: its working directory: No such file or directory"),
        ({"command": "{root}/no-such-program"}, "it cannot be started: no-such-program: No such file or directory"),
    ],
)
async def test_outside_what_cannot_be_started_is_named_without_our_paths(
    bare_desk: Toolbench, entry: dict[str, str], said: str
) -> None:
    written = {name: text.format(root=bare_desk.root) for name, text in entry.items()}
    async with opened(bare_desk, {"raw": raw(sandbox=False, **written)}) as found:
        assert said in found.warnings[0]
        assert str(bare_desk.root) not in found.warnings[0]


async def test_outside_too_a_server_that_does_not_end_is_killed_with_its_group(bare_desk: Toolbench) -> None:
    script = 'trap "" TERM; sleep 1000 & echo started >&2; wait; sleep 1000'
    entry = {"command": "sh", "args": ["-c", script], "sandbox": False}
    async with opened(bare_desk, {"stubborn": entry}, seconds=1) as found:
        assert "its stderr: started" in found.warnings[0]
    assert [Path(each).name for each in bare_desk.sandbox.reaped] == ["sh"]
    await until(lambda: started() == set())


@pytest.mark.usefixtures("desk")
def test_no_server_outlives_a_killed_worker(tmp_path: Path) -> None:
    """Neither inside of the sandbox nor outside, nor what they have started and detached."""
    command = [sys.executable, "-m", "tests.worker.mcp.holding", str(tmp_path / "worker")]
    (tmp_path / "worker").mkdir()
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"ready\n"
            assert len([pid for pid in started() if b"raw.py" in _command(pid)]) >= 2
            until_sync(lambda: [_command(pid) for pid in started()].count(b"sleep\x002000\x00") == 2)
        finally:
            worker.kill()
    until_sync(lambda: started() == set())


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
