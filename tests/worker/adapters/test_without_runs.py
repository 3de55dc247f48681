"""Tools outside of runs: the two layers of a list of tools, and a library with each agent's share of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import Misconfigured
from deputize.shared.settings import Settings
from deputize.worker.adapters.declarations import BaseToolResult
from deputize.worker.adapters.without_runs import (
    AgentToolkit,
    ToolRegistry,
    add_workspace_tools,
    initialize_base_tools,
    initialize_tools,
)
from deputize.worker.tools.base import AnyTool, Effect, Kind, Origin, Params, Tool, ToolContext, ToolResult
from deputize.worker.tools.builtin import BUILTIN
from tests.runs.toolbench import open_toolbench
from tests.worker.adapters.playing import Theatre
from tests.worker.adapters.seed_classes import BaseTool, ToolParameter


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


class Named(BaseTool):
    def __init__(self, name: str) -> None:
        super().__init__(name, f"The tool {name}.")

    def get_parameters(self) -> list[ToolParameter]:
        return [ToolParameter("text", "string", "Any text")]

    async def execute(self, **params: Any) -> BaseToolResult:
        return BaseToolResult(True, f"{self.name}: {params['text']}")


def artifact_tools(manager: str) -> list[BaseTool]:
    return [Named(f"create_artifact_{manager}")]


NAMES = ("call_subagent", "web_search", "web_fetch")


@pytest.mark.requirement("S003-015", "S003-016")
def test_the_library_holds_each_name_once_and_reports_when_one_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    library = ToolRegistry()
    first, second = Named("web_search"), Named("web_search")
    library.register_tool_to_library(first)
    assert not caplog.text
    library.register_tool_to_library(second)
    assert "tool web_search of builtin replaces one of the same name" in caplog.text
    assert library.tool_library == {"web_search": second}
    assert [tool.name for tool in library.registry] == ["web_search"]
    assert library.agent_toolkits == {}


@pytest.mark.requirement("S003-017", "S003-018")
def test_an_agent_gets_its_own_subset_and_a_name_that_is_not_there_is_a_mistake() -> None:
    library = initialize_tools(map(Named, NAMES), {})
    kit = library.create_agent_toolkit("writer", ["web_fetch", "web_search"])
    assert library.get_agent_toolkit("writer") is kit
    assert {tool.name for tool in kit.list_tools()} == {"web_fetch", "web_search"}
    assert library.create_agent_toolkit("idle").list_tools() == []
    assert library.get_agent_toolkit("reader") is None
    with pytest.raises(Misconfigured, match="the toolkit of reader: no tool is called 'web_serch'; did you mean web_s"):
        library.create_agent_toolkit("reader", ["web_fetch", "web_serch"])
    assert library.get_agent_toolkit("reader") is None


@pytest.mark.requirement("S003-019", "S003-020", "S003-021")
async def test_a_toolkit_adds_lists_and_executes() -> None:
    kit = AgentToolkit("writer")
    one, two = Named("one"), Named("two")
    kit.add_tool(one)
    kit.add_tools([two])
    assert (kit.agent_name, kit.tools) == ("writer", {"one": one, "two": two})
    assert (kit.get_tool("one"), kit.get_tool("three")) == (one, None)
    assert kit.list_tools() == [one, two]
    assert (await kit.execute_tool("two", {"text": "hi"})).data == "two: hi"
    assert (await kit.execute_tool("two", {})).success is False
    missing = await kit.execute_tool("three", {"text": "hi"})
    assert missing == BaseToolResult(False, error="Tool 'three' not available in writer's toolkit")


@pytest.mark.requirement("S003-022", "S003-023")
def test_at_start_up_each_agent_that_requires_tools_gets_a_toolkit() -> None:
    agents = {"writer": ["web_search", "create_artifact_m"], "router": ["call_subagent"], "idle": []}
    library = initialize_tools(map(Named, NAMES), agents, artifact_tools, "m")
    assert list(library.tool_library) == [*NAMES, "create_artifact_m"]
    assert list(library.agent_toolkits) == ["writer", "router"]
    without = initialize_tools(map(Named, NAMES), {"router": ["call_subagent"]}, artifact_tools)
    assert list(without.tool_library) == [*NAMES]


@pytest.mark.requirement("S003-015", "S003-020")
async def test_a_worker_is_given_the_library_and_a_delegation_an_agents_share(theatre: Theatre) -> None:
    library = initialize_tools(map(Named, NAMES), {"writer": ["web_fetch"]})
    kit = library.get_agent_toolkit("writer")
    assert kit is not None
    names = {tool.name for tool in kit.list_tools()}
    offered = [tool for tool in library.registry if tool.name in names]
    play = await theatre.play(offered, {"text": "hi"}, {"call": "web_search", "arguments": {"text": "hi"}})
    assert play.steps[0].result == "web_fetch: hi"
    assert play.steps[1].error is not None
    assert play.steps[1].error.startswith("there is no tool 'web_search' in this run.")
