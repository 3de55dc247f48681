"""Discovered tools: announced by one command, carried out by another, both in the run's sandbox."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import ErrorType
from deputize.shared.events import ErrorSeen, RunStarted, StepCompleted
from deputize.shared.settings import ToolSettings
from deputize.worker.contracts import Command, Completed
from deputize.worker.mcp.source import McpServers
from deputize.worker.sandbox.bubblewrap import Bubblewrap, NoSandbox
from deputize.worker.toolkit.discovery import MAX_TOOLS, DiscoveredTool, Discovery, ToolDeclaration
from deputize.worker.toolkit.sources import ToolSourceContext
from deputize.worker.tools.base import AnyTool
from deputize.worker.tools.builtin import BUILTIN
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.runs.toolbench import Toolbench, open_toolbench

GREET = {
    "name": "greet",
    "description": "Greets somebody.",
    "parameters": {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]},
}

CALLS = """
case "$1" in
  greet) printf 'hello '; cat ;;
  fail) echo half; echo "no such thing" >&2; exit 3 ;;
  grumble) echo done; echo "but I grumble" >&2 ;;
  whisper) echo "DeprecationWarning: x" >&2 ;;
  die) kill -9 $$ ;;
  store) cat > stored.json ;;
esac
"""


def settings(discovery: str = "cat tools.json", calling: str = "sh calls.sh", **fields: Any) -> ToolSettings:
    return ToolSettings(discovery_command=discovery, call_command=calling, **fields)


def announce(folder: Path, *declarations: Any) -> None:
    """Makes a folder in which the commands of ``settings`` find these tools."""
    folder.mkdir(exist_ok=True)
    (folder / "tools.json").write_text(json.dumps(declarations))
    (folder / "calls.sh").write_text(CALLS)


def place(desk: Toolbench, warn: Callable[[str], None], patterns: Sequence[str] | None = None) -> ToolSourceContext:
    return ToolSourceContext("dlg_01k00000000000000000000000", patterns, desk.files, desk.sandbox, warn)


async def found(desk: Toolbench, chosen: ToolSettings, patterns: Sequence[str] | None = None) -> tuple[Any, list[str]]:
    """The discovered tools by name, and what was warned of."""
    warnings: list[str] = []
    async with Discovery(chosen, BUILTIN).open(place(desk, warnings.append, patterns)) as tools:
        return {tool.name: tool for tool in tools}, warnings


async def announced(desk: Toolbench, *declarations: Any) -> tuple[dict[str, AnyTool], list[str]]:
    desk.write("tools.json", json.dumps(declarations))
    desk.write("calls.sh", CALLS)
    return await found(desk, settings())


async def test_a_worker_without_a_sandbox_discovers_nothing_and_reports_the_reason(bare_desk: Toolbench) -> None:
    tools, warnings = await found(bare_desk, settings())
    assert (tools, len(warnings)) == ({}, 1)
    assert "commands cannot be run on this worker" in warnings[0]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("true", "did not print valid JSON"),
        ("echo '[{\"name\": NaN}]'", "NaN is not valid JSON"),
        ("printf '\\377\\376\\001'", "did not print valid JSON"),
        ("head -c 200000 /dev/zero | tr '\\0' '['", "did not print valid JSON"),
        ("head -c 1100000 /dev/zero", "printed more than 1048576 bytes"),
        ("no-such-program", "ended with exit code 127"),
    ],
)
async def test_invalid_output_of_the_discovery_command_is_reported(desk: Toolbench, command: str, said: str) -> None:
    tools, warnings = await found(desk, settings(command))
    assert (tools, len(warnings)) == ({}, 1)
    assert warnings[0].startswith("there are no discovered tools: the discovery command")
    assert said in warnings[0]


def deep(levels: int) -> Any:
    return {"not": deep(levels - 1)} if levels else {}


@pytest.mark.parametrize(
    ("declaration", "said"),
    [
        ("greet", "it is not an object"),
        ([], "it is not an object"),
        ({"functionDeclarations": [1]}, "it is not an object"),
        ({"description": "nameless"}, "name: Field required"),
        ({"name": "a\0b"}, "a NUL character"),
        ({"name": ""}, "name: String should have at least 1 character"),
        ({"name": "x", "parameters": [1]}, "Input should be a valid dictionary"),
        ({"name": "x", "parameters": {"type": "string"}}, "the schema must be that of an object"),
        ({"name": "x", "parameters": {"properties": {"a": {"type": "txt"}}}}, "are not a valid JSON Schema"),
        ({"name": "x", "description": "half \ud83d"}, "surrogates not allowed"),
        ({"name": "x", "description": "long" * 10_000}, "longer than 20000"),
        ({"name": "x", "parameters": deep(300)}, "nested more than 100 deep"),
        ({"name": "greet"}, "'greet' is declared twice"),
    ],
)
async def test_a_wrong_declaration_is_left_out_and_the_others_stay(
    desk: Toolbench, declaration: Any, said: str
) -> None:
    tools, warnings = await announced(desk, GREET, declaration)
    assert list(tools) == ["greet"]
    assert len(warnings) == 1
    assert warnings[0].startswith("discovered tool 2 is left out: ")
    assert said in warnings[0]


async def test_the_schema_may_stand_under_any_of_its_names(desk: Toolbench) -> None:
    schema = GREET["parameters"]
    names = ("parametersJsonSchema", "parameters_json_schema", "input_schema", "inputSchema", "parameters")
    tools, _ = await announced(desk, *({"name": name, name: schema} for name in names), {"name": "none"})
    assert all(tools[name].schema["required"] == ["who"] for name in names)
    assert tools["none"].schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert tools["none"].description == "The tool none."


async def test_no_discovered_tool_takes_anothers_name(desk: Toolbench) -> None:
    names = ["bash", "ls", "mcp__git__log", "two words", "two.words", "discovered_bash", "x" * 100]
    tools, warnings = await announced(desk, *({"name": name} for name in names))
    assert list(tools) == [
        "discovered_bash",
        "discovered_ls",
        "discovered_mcp__git__log",
        "two_words",
        "discovered_two_words",
        "discovered_discovered_bash",
        "x" * 64,
    ]
    assert warnings[0] == "the discovered tool 'bash' is named discovered_bash here"
    assert len(warnings) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in tools)


async def test_a_tool_with_another_name_here_is_called_by_its_own(desk: Toolbench) -> None:
    desk.write("calls.sh", 'printf "%s|" "$@"')
    desk.write("tools.json", json.dumps([{"name": "a b;c"}, {"name": "-n"}]))
    tools, _ = await found(desk, settings())
    assert (await tools["a_b_c"].run(desk.context(), {})).content == "a b;c|"
    assert (await tools["-n"].run(desk.context(), {})).content == "-n|"


async def test_many_tools_are_too_many_and_many_warnings_are_a_few(desk: Toolbench) -> None:
    tools, warnings = await announced(desk, *({"name": f"t{number}"} for number in range(MAX_TOOLS + 5)))
    assert (len(tools), len(warnings)) == (MAX_TOOLS, 1)
    _, warnings = await announced(desk, *range(500))
    assert len(warnings) == 11
    assert warnings[-1].startswith("490 more discovered tools")


@pytest.mark.parametrize(
    ("patterns", "asked"),
    [(None, True), (["*"], True), (["gr*"], True), (["greet"], True), ([], False), (["ls", "mcp__git__*"], False)],
)
async def test_the_command_runs_only_where_its_tools_can_be_wanted(
    desk: Toolbench, patterns: list[str] | None, asked: bool
) -> None:
    await found(desk, settings("touch asked; echo []"), patterns)
    assert (desk.root / "asked").exists() == asked


@pytest.mark.parametrize("chosen", [ToolSettings(), settings("touch asked; echo []", enable_discovered=False)])
async def test_without_a_command_or_switched_off_nothing_is_discovered(desk: Toolbench, chosen: ToolSettings) -> None:
    assert await found(desk, chosen) == ({}, [])
    assert not (desk.root / "asked").exists()


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
        assert [type(source) for source in bench.services.status.offered.sources] == [Discovery, McpServers]


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
async def test_a_call_that_fails_returns_the_output_of_the_command(
    desk: Toolbench, name: str, type: ErrorType, error: str, content: str
) -> None:
    tools, _ = await announced(desk, {"name": name})
    result = await tools[name].run(desk.context(), {})
    assert (result.success, result.error_type) == (False, type)
    assert (result.error or "").startswith(f"{error}. Check the arguments, or do without it.")
    assert result.content.startswith(content)
    assert "[exit code: " in result.content


@pytest.mark.parametrize(
    ("name", "content"), [("grumble", "done\n[stderr]\nbut I grumble"), ("whisper", "[stderr]\nDeprecationWarning: x")]
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


async def test_commands_that_take_too_long_are_stopped_and_reported(tmp_path: Path) -> None:
    with open_toolbench(tmp_path / "desk", sandbox=Slow("it is slow")) as desk:
        assert await found(desk, settings()) == (
            {},
            ["there are no discovered tools: the discovery command was stopped after 15 seconds"],
        )
        tool = DiscoveredTool("slow", ToolDeclaration(name="slow"), "sh calls.sh")
        result = await tool.run(desk.context(), {})
    assert (result.error_type, result.content) == (ErrorType.TIMEOUT, "so far")
    assert result.error == "slow was stopped after 120 seconds. Its output:"


async def test_a_call_that_was_cut_off_is_shown_by_its_mark(desk: Toolbench, tmp_path: Path) -> None:
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
