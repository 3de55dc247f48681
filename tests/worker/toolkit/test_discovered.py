"""Discovered tools: announced by one command, carried out by another, both in the run's sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from deputize.shared.errors import ErrorType
from deputize.shared.events import ErrorSeen, RunStarted, StepCompleted
from deputize.shared.settings import ToolSettings
from deputize.worker.mcp.source import McpServers
from deputize.worker.sandbox.base import NoSandbox
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.command import Command, Completed
from deputize.worker.toolkit.discovery import DiscoveredTool, Discovery, ToolDeclaration
from tests.running import Bench, call, open_bench, say, script
from tests.toolbench import Toolbench, open_toolbench
from tests.worker.toolkit.discovering import CALLS, GREET, announce, announced, found, settings


@asynccontextmanager
async def worker(redis_url: str, home: Path, tools: ToolSettings) -> AsyncIterator[Bench]:
    if reason := await Bubblewrap.selftest():
        pytest.skip(f"no sandbox here: {reason}")
    async with open_bench(redis_url, home, tools=tools) as bench:
        yield bench


@pytest.mark.requirement("S004-001", "S004-027", "S004-032")
async def test_a_run_is_offered_what_the_command_announces_and_calls_it(redis_url: str, tmp_path: Path) -> None:
    anything = {"type": "object", "additionalProperties": True}
    announce(tmp_path / "source", GREET, {"functionDeclarations": [{"name": "store", "input_schema": anything}]})
    model = script(
        tmp_path, [call("greet", who="Ada")], [call("greet", whom="Ada")], [call("store", a=[1])], [say("Done.")]
    )
    async with worker(redis_url, tmp_path / "home", settings()) as bench:
        result = await bench.run(model=model, workspace={"kind": "directory", "path": str(tmp_path / "source")})
        events = [envelope.event for envelope in await bench.events(result.delegation_id)]
    started = next(event for event in events if isinstance(event, RunStarted))
    assert started.tools[-2:] == ["greet", "store"]
    steps = [event.step for event in events if isinstance(event, StepCompleted)]
    assert [step.result for step in steps] == ['hello {"who": "Ada"}', None, None]
    [error] = result.errors
    assert error.startswith("greet: invalid arguments for greet: arguments: Additional properties are not allowed")
    assert error.endswith('arguments: "who" is a required property. Known parameters: who.')
    assert result.files_modified == ["stored.json"]


@pytest.mark.requirement("S004-027")
async def test_a_run_gets_tools_from_the_command_and_from_mcp_servers(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home") as bench:
        assert [type(source) for source in bench.services.offered.sources] == [Discovery, McpServers]


async def test_a_run_that_may_only_look_may_not_call_them(redis_url: str, tmp_path: Path) -> None:
    announce(tmp_path / "source", GREET)
    model = script(tmp_path, [call("greet", who="Ada")], [say("Done.")])
    workspace = {"kind": "directory", "path": str(tmp_path / "source")}
    async with worker(redis_url, tmp_path / "home", settings()) as bench:
        result = await bench.run(model=model, workspace=workspace, approval_mode="readOnly")
    assert result.errors[0].startswith("greet: denied: this delegation is read-only")


@pytest.mark.requirement("S000-024")
@pytest.mark.parametrize("asked", [None, ["glob", "greet"]])
async def test_a_run_goes_on_without_what_could_not_be_discovered(
    redis_url: str, tmp_path: Path, asked: list[str] | None
) -> None:
    async with worker(redis_url, tmp_path / "home", settings("echo nothing such >&2; exit 7")) as bench:
        result = await bench.run(model=script(tmp_path, [say("Done.")]), tools=asked)
        events = [envelope.event for envelope in await bench.events(result.delegation_id)]
    said = "there are no discovered tools: the discovery command ended with exit code 7: nothing such"
    assert result.success
    assert result.errors == [said]
    assert [(event.message, event.kind) for event in events if isinstance(event, ErrorSeen)] == [
        (said, "tools_missing")
    ]


@pytest.mark.parametrize(
    ("name", "type", "error", "content"),
    [
        ("fail", ErrorType.DISCOVERED_TOOL_EXECUTION_ERROR, "fail ended with exit code 3", "half\n[stderr]\nno such"),
        ("die", ErrorType.DISCOVERED_TOOL_EXECUTION_ERROR, "die ended with exit code 137", ""),
    ],
)
async def test_a_call_that_fails_says_what_the_command_said(
    desk: Toolbench, name: str, type: ErrorType, error: str, content: str
) -> None:
    tools, _ = await announced(desk, {"name": name})
    result = await tools[name].run(desk.context(), {})
    assert (result.success, result.error_type) == (False, type)
    assert (result.error or "").startswith(f"{error}. Check the arguments, or do without it.")
    assert result.content.startswith(content)
    assert "[exit code: " in result.content


@pytest.mark.parametrize(
    ("name", "content"),
    [("grumble", "done\n[stderr]\nbut I grumble"), ("whisper", "[stderr]\nDeprecationWarning: x")],
)
async def test_words_on_standard_error_are_shown_and_are_no_failure(desk: Toolbench, name: str, content: str) -> None:
    tools, _ = await announced(desk, {"name": name})
    result = await tools[name].run(desk.context(), {})
    assert (result.success, result.content) == (True, content)
    assert result.metadata["stderr"] in f"{content}\n"


class Slow(NoSandbox):
    """A sandbox in which every command's time runs out."""

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
        return Completed(-9, b"so far", b"", timed_out=True)


async def test_commands_that_take_too_long_are_stopped_and_told_of(tmp_path: Path) -> None:
    with open_toolbench(tmp_path / "desk", sandbox=Slow("it is slow")) as desk:
        assert await found(desk, settings()) == (
            {},
            ["there are no discovered tools: the discovery command was stopped after 15 seconds"],
        )
        tool = DiscoveredTool("slow", ToolDeclaration(name="slow"), "sh calls.sh")
        result = await tool.run(desk.context(), {})
    assert (result.error_type, result.content) == (ErrorType.TIMEOUT, "so far")
    assert result.error == "slow was stopped after 120 seconds. Its output:"


async def test_of_a_call_that_was_cut_off_its_mark_tells(desk: Toolbench, tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    desk.write("calls.sh", CALLS)
    tool = DiscoveredTool("fail", ToolDeclaration(name="fail"), "sh calls.sh")
    with Bubblewrap(desk.root, status_folder=tmp_path / "marks") as sandbox:
        context = replace(desk.context(), sandbox=sandbox)
        assert await tool.probe(context, {}, {}) is False
        await tool.run(context, {})
        known = await tool.probe(context, {}, {})
    assert known
    assert (known.error or "").startswith("the command completed with exit code 3")


async def test_its_output_is_seen_while_it_runs(desk: Toolbench) -> None:
    tools, _ = await announced(desk, GREET)
    await tools["greet"].run(desk.context(), {"who": "Ada"})
    assert any("hello" in fields.get("output", "") for _, fields in desk.news)
