"""A server that is a program in the sandbox: what it sees, what it offers, and what its answers become."""

from __future__ import annotations

import json
import os

import pytest

from deputize.shared.errors import ErrorType
from deputize.shared.request import ApprovalMode
from deputize.worker.policy import PolicyCall, PolicyContext, decide
from deputize.worker.policy.base import Decision
from deputize.worker.sandbox.environment import OFFLINE, VARIABLES
from deputize.worker.toolkit.registry import Registry
from deputize.worker.tools.base import Effect, Kind, Origin
from deputize.worker.tools.context import Touches
from tests.toolbench import Toolbench
from tests.worker.mcp.opening import Opened, opened, started
from tests.worker.mcp.servers import raw

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
    assert started() == set()


@pytest.mark.requirement("P-17")
async def test_a_server_gets_no_variable_but_those_that_are_named(desk: Toolbench) -> None:
    entry = raw(env={"KEY": "${SECRET_KEY}", "PLAIN": "as it is"})
    worker = {"PATH": os.environ["PATH"], "SECRET_KEY": "s3cret!", "OTHER_KEY": "other", "HOME": "/root"}
    async with opened(desk, {"raw": entry}, environ=worker) as found:
        environ = json.loads((await found.call("mcp__raw__environ")).content)
    assert (environ["KEY"], environ["PLAIN"]) == ("s3cret!", "as it is")
    assert set(environ) - {"KEY", "PLAIN", *VARIABLES, *OFFLINE} <= {"PATH", "PWD", "LC_CTYPE", "_", "SHLVL"}
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


async def test_arguments_are_checked_before_the_server_sees_them(server: Opened) -> None:
    result = await server.call("mcp__raw__echo", text=3)
    assert result.error_type is ErrorType.INVALID_TOOL_PARAMS
    assert server.notes() == []


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
