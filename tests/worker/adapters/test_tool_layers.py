"""The two layers of tools: those without workspace access, and those for files of a workspace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.settings import Settings
from deputize.worker.adapters.without_runs import add_workspace_tools, initialize_base_tools
from deputize.worker.tools import BUILTIN
from deputize.worker.tools.base import AnyTool, Effect, Kind, Origin, Params, Tool, ToolContext, ToolResult
from tests.toolbench import open_toolbench


class ServersTool(Tool[Params]):
    """As an MCP server's tool would be."""

    name = "mcp__git__log"
    kind = Kind.OTHER
    effect = Effect.EFFECTFUL
    origin = Origin("mcp", "git")
    params = Params

    async def run(self, ctx: ToolContext, params: Params) -> ToolResult:
        return ToolResult("one commit")


async def from_servers() -> Sequence[AnyTool]:
    return [ServersTool()]


def settings(home: Path, **tools: Any) -> Settings:
    return Settings.load(environ={}, home=home, tools=tools)


def skill(folder: Path) -> Path:
    (folder / "greeting").mkdir(parents=True)
    text = "---\nname: greeting\ndescription: How to greet.\n---\nSay hello.\n"
    (folder / "greeting" / "SKILL.md").write_text(text)
    return folder


@pytest.mark.requirement("S000-005", "S000-008", "S000-009", "S000-010", "S000-023")
async def test_the_base_layer_is_commands_skills_and_servers(tmp_path: Path) -> None:
    chosen = settings(tmp_path, skills_dir=skill(tmp_path / "skills"))
    tools, loader = await initialize_base_tools(chosen, from_servers)
    names = [tool.name for tool in tools]
    assert {"bash", "bash_output", "bash_kill", "get_skill"} < set(names)
    assert names[-1] == "mcp__git__log"
    assert not {"read_file", "write_file", "edit_file", "glob", "record_note"} & set(names)
    assert loader is not None
    assert loader.list_skills() == ["greeting"]


@pytest.mark.requirement("S000-005", "S000-025")
async def test_what_is_switched_off_is_in_no_layer(tmp_path: Path) -> None:
    off = settings(tmp_path, enable_bash=False, enable_skills=False, enable_mcp=False, enable_file_tools=False)
    tools, loader = await initialize_base_tools(off, from_servers)
    add_workspace_tools(tools, off, tmp_path / "workspace")
    names = {tool.name for tool in tools}
    assert loader is None
    assert not {"bash", "bash_output", "bash_kill", "get_skill", "mcp__git__log", "read_file", "write_file"} & names
    assert "glob" in names


async def test_servers_that_fail_cost_only_their_tools(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> Sequence[AnyTool]:
        raise ConnectionError("nobody there")

    tools, _ = await initialize_base_tools(settings(tmp_path), fail)
    assert "bash" in [tool.name for tool in tools]
    assert "Failed to load MCP tools: nobody there" in caplog.text


@pytest.mark.requirement("S000-006", "S000-007", "S000-011")
async def test_the_workspace_layer_is_added_in_place_and_its_directory_made(tmp_path: Path) -> None:
    tools, _ = await initialize_base_tools(settings(tmp_path))
    base = list(tools)
    workspace = tmp_path / "some" / "workspace"
    for _ in range(2):
        added = list(base)
        add_workspace_tools(added, settings(tmp_path), workspace)
        assert workspace.is_dir()
        assert added[: len(base)] == base
        assert {"read_file", "write_file", "edit_file"} < {tool.name for tool in added[len(base) :]}
        assert {tool.name for tool in added} <= {tool.name for tool in BUILTIN}


@pytest.mark.requirement("S000-003", "S000-011", "S000-023")
async def test_one_list_of_tools_works_over_different_workspaces(tmp_path: Path) -> None:
    tools, _ = await initialize_base_tools(settings(tmp_path))
    add_workspace_tools(tools, settings(tmp_path), tmp_path / "workspace")
    writer = next(tool for tool in tools if tool.name == "write_file")
    for place in ("one", "two"):
        with open_toolbench(tmp_path / place) as desk:
            await writer.run(desk.context(), writer.parse({"path": "a.txt", "content": place}))
    assert [(tmp_path / place / "a.txt").read_text() for place in ("one", "two")] == ["one", "two"]
