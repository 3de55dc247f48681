"""003: a library of tools, and each agent's own share of it."""

from __future__ import annotations

from typing import Any

import pytest

from deputize.shared.errors import Misconfigured
from deputize.worker.adapters.base_classes import BaseTool, BaseToolResult, ToolParameter
from deputize.worker.adapters.without_runs import AgentToolkit, ToolRegistry, initialize_tools
from tests.worker.adapters.playing import Theatre


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
def test_the_library_holds_each_name_once_and_says_when_one_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
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
