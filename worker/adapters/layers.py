"""Tools in two layers: tools that know no workspace, and tools that work in one.

None of ours holds a workspace: which one it is comes with each call, so that one list of tools serves every run. These
functions are for programs that put such a list together themselves; a worker uses ``registry.offered``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from shared.log import log
from shared.settings import Settings
from worker.adapters.foreign import attempted
from worker.skills.loader import SkillLoader
from worker.threads import run_in_thread
from worker.toolkit.registry import offered
from worker.tools import BUILTIN
from worker.tools.base import AnyTool
from worker.tools.get_skill import GetSkill

IN_A_WORKSPACE = {"enable_file_tools", "enable_search", "enable_note", "enable_artifacts"}
"""The switches of tools that read or write the workspace's files."""


async def initialize_base_tools(
    settings: Settings, load_mcp: Callable[[], Awaitable[Sequence[AnyTool]]] | None = None
) -> tuple[list[AnyTool], SkillLoader | None]:
    """The tools that know no workspace: commands, skills, the web, and what ``load_mcp`` gives.

    The loader is None where no skill is offered. MCP servers live as long as a run does, so the caller opens them; if
    that fails it is warned of, and the others are there all the same.
    """
    tools = await run_in_thread(offered, settings, [tool for tool in BUILTIN if tool.switch not in IN_A_WORKSPACE])
    loader = next((tool.loader for tool in tools if isinstance(tool, GetSkill)), None)
    if load_mcp is not None and settings.tools.enable_mcp is not False:
        loaded = await attempted(load_mcp)
        if isinstance(loaded, Exception):
            log.warning("Failed to load MCP tools: %s", loaded)
        else:
            tools += loaded
    return tools, loader


def add_workspace_tools(tools: list[AnyTool], settings: Settings, workspace_dir: Path) -> None:
    """Adds the tools for a workspace's files to the list; makes the directory where it is missing."""
    workspace_dir.mkdir(parents=True, exist_ok=True)
    tools += offered(settings, [tool for tool in BUILTIN if tool.switch in IN_A_WORKSPACE])
