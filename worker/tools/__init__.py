"""The tools: one file each, and one line each in BUILTIN."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from shared.catalog import ToolCard
from shared.errors import Invalid
from worker.tools.base import AnyTool, unknown_tool
from worker.tools.bash import Bash
from worker.tools.edit_file import EditFile
from worker.tools.glob import Glob
from worker.tools.grep import Grep
from worker.tools.list_directory import ListDirectory
from worker.tools.read_file import ReadFile
from worker.tools.write_file import WriteFile

BUILTIN: tuple[AnyTool, ...] = (
    ReadFile(),
    WriteFile(),
    EditFile(),
    Bash(),
    Glob(),
    Grep(),
    ListDirectory(),
)
DEFAULT_KIT = ("read_file", "write_file", "edit_file", "bash", "glob", "grep")
"""What a run gets that asks for nothing else. Few on purpose: every further tool is one more decision (C19)."""


def toolkit(patterns: Sequence[str] | None, tools: Iterable[AnyTool] = BUILTIN) -> dict[str, AnyTool]:
    """The tools of one run by name. A pattern is a name, an alias or an fnmatch pattern; None is the default kit.

    Raises Invalid that points at each pattern which fits no tool (C26).
    """
    offered = tuple(tools)
    wanted = DEFAULT_KIT if patterns is None else patterns
    chosen = {pattern: {tool.name for tool in offered if _fits(tool, pattern)} for pattern in wanted}
    if unknown := [(at, pattern) for at, pattern in enumerate(wanted) if not chosen[pattern]]:
        errors = [{"pointer": f"/tools/{at}", "detail": _no_such(pattern, offered)} for at, pattern in unknown]
        raise Invalid("; ".join(error["detail"] for error in errors), errors)
    names = set[str]().union(*chosen.values())
    return {tool.name: tool for tool in offered if tool.name in names}


def find(kit: Mapping[str, AnyTool], name: str) -> AnyTool:
    """The tool of that name or alias. Raises ToolError(UNKNOWN_TOOL) with the closest names."""
    if name in kit:
        return kit[name]
    for tool in kit.values():
        if name in tool.aliases:
            return tool
    raise unknown_tool(name, kit)


def cards(tools: Iterable[AnyTool] = BUILTIN) -> list[ToolCard]:
    """The tools as this worker announces them."""
    return [
        ToolCard(
            name=tool.name,
            description=tool.description,
            kind=tool.kind,
            effect=tool.effect,
            parameters=tool.schema,
            aliases=list(tool.aliases),
        )
        for tool in tools
    ]


def _fits(tool: AnyTool, pattern: str) -> bool:
    return pattern in tool.aliases or fnmatchcase(tool.name, pattern)


def _no_such(pattern: str, offered: Sequence[AnyTool]) -> str:
    names = [name for tool in offered for name in (tool.name, *tool.aliases)]
    near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(tool.name for tool in offered)}"
    return f"no tool is called {pattern!r}; {hint}"
