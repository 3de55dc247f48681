"""What the discovery command announces: what becomes a tool, and what is warned of."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from deputize.shared.settings import ToolSettings
from deputize.worker.toolkit.discovery import MAX_TOOLS
from tests.toolbench import Toolbench
from tests.worker.toolkit.discovering import GREET, announced, found, settings


async def test_a_worker_without_a_sandbox_discovers_nothing_and_says_why(bare_desk: Toolbench) -> None:
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
async def test_nonsense_from_the_discovery_command_is_told_of(desk: Toolbench, command: str, said: str) -> None:
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


@pytest.mark.parametrize(
    "chosen",
    [ToolSettings(), settings("touch asked; echo []", enable_discovered=False)],
)
async def test_without_a_command_or_switched_off_nothing_is_discovered(desk: Toolbench, chosen: ToolSettings) -> None:
    assert await found(desk, chosen) == ({}, [])
    assert not (desk.root / "asked").exists()
