"""Adapters for tools of other styles; each style has a file, and ``adapter.py`` the base class.

A worker with such a tool: ``main(tools=(*BUILTIN, adapt(tool)))``. ``initialize_base_tools`` and
``add_workspace_tools`` are for programs that assemble a list of tools themselves; the workspace comes with each call,
so that one list serves every run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ...shared.log import log
from ...shared.settings import Settings
from ..threads import run_in_thread
from ..toolkit.registry import available_tools
from ..tools import BUILTIN
from ..tools.base import AnyTool, Effect, Kind, Tool
from ..tools.skills import GetSkill, SkillLoader
from .adapter import try_call
from .base_tool import BaseToolAdapter, BaseToolLike
from .builder import BuilderAdapter, ToolBuilder
from .execute_kwargs import PlainTool, PlainToolAdapter
from .function_table import TableEntry, TableEntryAdapter, adapt_table
from .tool_define import AsyncToolInfoAdapter, ToolInfo, ToolInfoAdapter, ToolInfoAsync

__all__ = [
    "TableEntry",
    "TableEntryAdapter",
    "adapt",
    "adapt_table",
    "add_workspace_tools",
    "convert_tools",
    "initialize_base_tools",
]

WORKSPACE_SWITCHES = {"enable_file_tools", "enable_search", "enable_note", "enable_artifacts"}
"""Switches of the tools that read or write files of the workspace."""


def adapt(tool: object, *, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> AnyTool:
    """Returns an adapter for a tool of any style, or the tool itself if it needs none.

    ``kind`` and ``effect`` apply to styles that do not declare them (a builder declares its kind).
    Raises TypeError for an object that is not a tool, and Misconfigured for one that cannot be offered.
    """
    match tool:
        case type():  # a class has the members of its instances, but is not a tool
            raise _unsupported(tool)
        case Tool():
            return tool
        case ToolInfo():
            return ToolInfoAdapter(tool, kind, effect)
        case ToolInfoAsync():
            return AsyncToolInfoAdapter(tool, kind, effect)
        case ToolBuilder():
            return BuilderAdapter(tool, effect)
        case BaseToolLike():
            return BaseToolAdapter(tool, kind, effect)
        case PlainTool():
            return PlainToolAdapter(tool, kind, effect)
        case _:
            raise _unsupported(tool)


def convert_tools(tools: Iterable[object]) -> list[dict[str, Any]]:
    """Returns the Messages API declarations of tools of any style; a mapping is a declaration already."""
    return [tool if isinstance(tool, dict) else adapt(tool).to_schema() for tool in tools]


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


def _unsupported(tool: object) -> TypeError:
    return TypeError(f"Unsupported tool type: {type(tool)}")
