"""Toolkits: a library of tools, and for each agent the toolkit it may use. The library is this project's one map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from shared.errors import Invalid, Misconfigured
from worker.adapters.base_tool import AdaptedBaseTool, BaseTool, ToolResult
from worker.registry import Registry


class AgentToolkit:
    """The tools of one agent. Permission is not its business: a run's loop asks."""

    def __init__(self, agent_name: str, tools: Iterable[BaseTool] = ()) -> None:
        self.agent_name = agent_name
        self.tools: dict[str, BaseTool] = {}
        self.add_tools(tools)

    def add_tool(self, tool: BaseTool) -> None:
        self.tools[tool.name] = tool

    def add_tools(self, tools: Iterable[BaseTool]) -> None:
        for tool in tools:
            self.add_tool(tool)

    def get_tool(self, name: str) -> BaseTool | None:
        return self.tools.get(name)

    def list_tools(self) -> list[BaseTool]:
        return list(self.tools.values())

    async def execute_tool(self, name: str, params: Mapping[str, Any]) -> ToolResult:
        """The tool validates and executes; one that is not in the kit is an answer."""
        tool = self.get_tool(name)
        if tool is None:
            return ToolResult(False, error=f"Tool '{name}' not available in {self.agent_name}'s toolkit")
        return await tool(**params)


class ToolRegistry:
    """The library and the toolkits. ``registry`` is what a worker is given: it holds the same tools."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.tool_library: dict[str, BaseTool] = {}
        self.agent_toolkits: dict[str, AgentToolkit] = {}

    def register_tool_to_library(self, tool: BaseTool) -> None:
        """Adds a tool; one of the same name is replaced, with a warning."""
        self.registry.register(AdaptedBaseTool(tool))
        self.tool_library[tool.name] = tool

    def create_agent_toolkit(self, agent: str, tool_names: Sequence[str] | None = None) -> AgentToolkit:
        """An agent's own subset of the library, kept under its name.

        Raises ``Misconfigured`` for a name that is not in the library, with the closest ones.
        """
        try:
            names = self.registry.kit(tool_names or ())
        except Invalid as unknown:
            raise Misconfigured(f"the toolkit of {agent}: {unknown.detail}") from None
        toolkit = AgentToolkit(agent, (self.tool_library[name] for name in names))
        self.agent_toolkits[agent] = toolkit
        return toolkit

    def get_agent_toolkit(self, agent: str) -> AgentToolkit | None:
        """The agent's toolkit, or None."""
        return self.agent_toolkits.get(agent)


def initialize_tools(
    tools: Iterable[BaseTool],
    agents: Mapping[str, Sequence[str]],
    artifact_tools: Callable[[Any], Iterable[BaseTool]] | None = None,
    artifact_manager: Any = None,
) -> ToolRegistry:
    """What that design does at start-up: all tools into the library, those for artifacts only where somebody keeps
    artifacts, then a toolkit for each agent that requires tools."""
    library = ToolRegistry()
    artifacts = artifact_tools(artifact_manager) if artifact_tools and artifact_manager is not None else ()
    for tool in (*tools, *artifacts):
        library.register_tool_to_library(tool)
    for agent, required in agents.items():
        if required:
            library.create_agent_toolkit(agent, required)
    return library
