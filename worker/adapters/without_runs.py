"""Tools outside of runs: for programs that assemble a list of tools, share it among agents, or call a tool themselves.

Nothing here checks permissions; the loop of a run does. The workspace comes with each call, so that one list of tools
serves every run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...shared.errors import Invalid, Misconfigured, ToolError
from ...shared.log import log
from ...shared.settings import Settings
from ..schemas.arguments import unknown_tool
from ..threads import run_in_thread
from ..toolkit.registry import Registry, available_tools, declaration
from ..tools.base import AnyTool, InitContext, ToolContext, ToolResult
from ..tools.bounded_result import bounded
from ..tools.builtin import BUILTIN
from ..tools.naming import find_tool
from ..tools.skills import GetSkill, SkillLoader
from .adapter import adapt, try_call
from .declarations import BaseToolResult, CallableTool

WORKSPACE_SWITCHES = {"enable_file_tools", "enable_search", "enable_note", "enable_artifacts"}
"""Switches of the tools that read or write files of the workspace."""


def convert_tools(tools: Iterable[object]) -> list[dict[str, Any]]:
    """Returns the Messages API declarations of tools of any style; a mapping is a declaration already."""
    return [tool if isinstance(tool, dict) else declaration(adapt(tool)) for tool in tools]


async def initialize_base_tools(
    settings: Settings, load_mcp: Callable[[], Awaitable[Sequence[AnyTool]]] | None = None
) -> tuple[list[AnyTool], SkillLoader | None]:
    """Returns the tools without workspace access (commands, skills, web, those of ``load_mcp``) and the skill loader.

    The loader is None where no skill is offered. The caller opens MCP servers, because they belong to a run; if that
    fails, a warning is logged and the other tools are returned.
    """
    tools = await run_in_thread(
        available_tools, settings, [tool for tool in BUILTIN if tool.availability.switch not in WORKSPACE_SWITCHES]
    )
    loader = next((tool.loader for tool in tools if isinstance(tool, GetSkill)), None)
    if load_mcp is not None and settings.tools.enable_mcp is not False:
        loaded = await try_call(load_mcp)
        if isinstance(loaded, Exception):
            log.warning("Failed to load MCP tools: %s", loaded)
        else:
            tools += loaded
    return tools, loader


def add_workspace_tools(tools: list[AnyTool], settings: Settings, workspace_dir: Path) -> None:
    """Appends the tools for workspace files to the list, and creates the directory if it does not exist."""
    workspace_dir.mkdir(parents=True, exist_ok=True)
    tools += available_tools(settings, [tool for tool in BUILTIN if tool.availability.switch in WORKSPACE_SWITCHES])


@dataclass(frozen=True, slots=True)
class ToolExecutionResult:
    """The result of ``execute_tool``."""

    success: bool
    data: dict[str, Any] | None = None
    error: str | None = None

    @classmethod
    def of(cls, result: ToolResult) -> ToolExecutionResult:
        """Converts a result; one with an error is a failure without data."""
        if result.error is not None:
            return cls(False, error=result.for_model.removeprefix("Error: "))
        return cls(True, {"title": result.title, "output": result.content, "metadata": result.metadata})


async def execute_tool(
    tools: Registry, id: str, arguments: Mapping[str, Any], ctx: ToolContext, skills: Mapping[str, str] | None = None
) -> ToolExecutionResult:
    """Executes one call of a tool of any style or server. All errors of the call are part of the result."""
    kit = {tool.name: tool for tool in tools}

    async def execute() -> ToolResult:
        tool = await find_tool(kit, id).ready(InitContext(ctx.delegation_id, skills or {}))
        if tool is None:
            raise unknown_tool(id, kit)
        return await bounded(await tool.run(ctx, tool.parse(arguments)), tool, ctx)

    result = await try_call(execute)
    if isinstance(result, Exception):
        error = result.message if isinstance(result, ToolError) else f"{id} failed inside: {result}"
        return ToolExecutionResult(False, error=error)
    return ToolExecutionResult.of(result)


class AgentToolkit:
    """The tools of one agent."""

    def __init__(self, agent_name: str, tools: Iterable[CallableTool] = ()) -> None:
        self.agent_name = agent_name
        self.tools: dict[str, CallableTool] = {}
        self.add_tools(tools)

    def add_tool(self, tool: CallableTool) -> None:
        self.tools[tool.name] = tool

    def add_tools(self, tools: Iterable[CallableTool]) -> None:
        self.tools.update({tool.name: tool for tool in tools})

    def get_tool(self, name: str) -> CallableTool | None:
        return self.tools.get(name)

    def list_tools(self) -> list[CallableTool]:
        return list(self.tools.values())

    async def execute_tool(self, name: str, params: Mapping[str, Any]) -> BaseToolResult:
        """Calls a tool by name. An unknown name is a failed result, not an exception."""
        tool = self.get_tool(name)
        if tool is None:
            return BaseToolResult(False, error=f"Tool '{name}' not available in {self.agent_name}'s toolkit")
        return await tool(**params)


@dataclass(slots=True)
class ToolRegistry:
    """A library of tools, and the agents' toolkits. ``registry`` holds the same tools for a worker."""

    registry: Registry = field(default_factory=Registry)
    tool_library: dict[str, CallableTool] = field(default_factory=dict[str, CallableTool])
    agent_toolkits: dict[str, AgentToolkit] = field(default_factory=dict[str, AgentToolkit])

    def register_tool_to_library(self, tool: CallableTool) -> None:
        """Adds a tool; one of the same name is replaced, with a warning."""
        self.registry.register(adapt(tool))
        self.tool_library[tool.name] = tool

    def create_agent_toolkit(self, agent: str, tool_names: Sequence[str] | None = None) -> AgentToolkit:
        """Creates and stores an agent's subset of the library; by default it is empty.

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
        return self.agent_toolkits.get(agent)


def initialize_tools(
    tools: Iterable[CallableTool],
    agents: Mapping[str, Sequence[str]],
    artifact_tools: Callable[[Any], Iterable[CallableTool]] | None = None,
    artifact_manager: Any = None,
) -> ToolRegistry:
    """Returns a registry with all tools, and with a toolkit for each agent that requires tools.

    ``artifact_tools`` is used only if there is an ``artifact_manager``.
    """
    library = ToolRegistry()
    artifacts = artifact_tools(artifact_manager) if artifact_tools and artifact_manager is not None else ()
    for tool in (*tools, *artifacts):
        library.register_tool_to_library(tool)
    for agent, required in agents.items():
        if required:
            library.create_agent_toolkit(agent, required)
    return library
