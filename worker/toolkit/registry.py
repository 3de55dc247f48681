"""The registry: every tool one run may be offered, in one map, whoever made it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from shared.catalog import ToolCard
from shared.errors import Invalid, Misconfigured
from shared.log import log
from shared.settings import Settings
from shared.text import did_you_mean
from worker.schemas.arguments import unknown_tool
from worker.tools import BUILTIN, DEFAULT_KIT
from worker.tools.base import AnyTool
from worker.tools.context import InitContext

_ORDER = ("builtin", "discovered", "mcp")


class Registry:
    """A map from name to tool. Sorted, built-in tools come first, then discovered ones, then MCP by server."""

    def __init__(self, tools: Iterable[AnyTool] = ()) -> None:
        self._tools: dict[str, AnyTool] = {}
        for tool in tools:
            self.register(tool)

    def register(self, tool: AnyTool) -> None:
        """Adds a tool; one of the same name is replaced, with a warning."""
        if tool.name in self._tools:
            log.warning("tool %s of %s replaces one of the same name", tool.name, tool.server or tool.source)
        self._tools[tool.name] = tool

    def unregister(self, name: str) -> None:
        """Takes a tool away; a name that is not there is no error."""
        self._tools.pop(name, None)

    def get(self, name: str) -> AnyTool | None:
        """The tool of that name or alias, or None."""
        return self._tools.get(name) or next((tool for tool in self if name in tool.aliases), None)

    def of_server(self, server: str) -> list[AnyTool]:
        """The tools of one MCP server."""
        return [tool for tool in self if tool.server == server]

    def __iter__(self) -> Iterator[AnyTool]:
        """Built-in → discovered → MCP by server's name; inside each the order of registering."""
        return iter(sorted(self._tools.values(), key=lambda tool: (_ORDER.index(tool.source), tool.server or "")))

    def __len__(self) -> int:
        return len(self._tools)

    def kit(
        self,
        patterns: Sequence[str] | None,
        default: Sequence[str] = DEFAULT_KIT,
        excused: Callable[[str], bool] = lambda pattern: False,
    ) -> dict[str, AnyTool]:
        """The tools of one run by name. A pattern is a name, an alias or an fnmatch pattern; None is the default kit.

        Raises ``Invalid`` that points at each pattern which fits no tool and is not ``excused``.
        """
        offered = tuple(self)
        if patterns is None:
            return {tool.name: tool for tool in offered if tool.name in default or tool.source != "builtin"}
        chosen = {pattern: {tool.name for tool in offered if _fits(tool, pattern)} for pattern in patterns}
        if unknown := [
            (at, pattern) for at, pattern in enumerate(patterns) if not (chosen[pattern] or excused(pattern))
        ]:
            errors = [{"pointer": f"/tools/{at}", "detail": _no_such(pattern, offered)} for at, pattern in unknown]
            raise Invalid("; ".join(error["detail"] for error in errors), errors)
        names = set[str]().union(*chosen.values())
        return {tool.name: tool for tool in offered if tool.name in names}

    def declarations(self) -> list[dict[str, Any]]:
        """All tools as the Messages API wants them declared."""
        return [tool.to_schema() for tool in self]


def offered(settings: Settings, tools: Iterable[AnyTool] = BUILTIN) -> list[AnyTool]:
    """The tools that a worker with these settings offers: not switched off, and with all they need.

    Logs how many they are.
    """
    on = (tool.configured(settings) for tool in tools if getattr(settings.tools, tool.switch, None) is not False)
    tools = [tool for tool in on if tool is not None]
    log.info("runs are offered %d tools: %s", len(tools), ", ".join(tool.name for tool in tools))
    return tools


def default_kit(settings: Settings, tools: Iterable[AnyTool] = BUILTIN) -> tuple[str, ...]:
    """The names of what a run gets that asks for nothing: DEFAULT_KIT, and whatever is switched on or set up."""
    on = [tool.name for tool in tools if tool.by_default or (tool.switch and getattr(settings.tools, tool.switch))]
    return (*DEFAULT_KIT, *(name for name in on if name not in DEFAULT_KIT))


async def made_ready(kit: Mapping[str, AnyTool], ctx: InitContext, warn: Callable[[str], None]) -> dict[str, AnyTool]:
    """The kit as one run uses it. A tool that cannot say what it is is warned of and left out."""
    ready: dict[str, AnyTool] = {}
    for name, tool in kit.items():
        try:
            made = await tool.ready(ctx)
        except Misconfigured as error:
            warn(str(error))
            continue
        if made is not None:
            ready[name] = made
    return ready


def find(kit: Mapping[str, AnyTool], name: str) -> AnyTool:
    """The tool of that name or alias. Raises ToolError(UNKNOWN_TOOL) with the closest names."""
    if name in kit:
        return kit[name]
    for tool in kit.values():
        if name in tool.aliases:
            return tool
    raise unknown_tool(name, kit)


def cards(tools: Iterable[AnyTool]) -> list[ToolCard]:
    """The tools as a worker announces them."""
    return [
        ToolCard(
            name=tool.name,
            description=tool.description,
            kind=tool.kind,
            effect=tool.effect,
            parameters=tool.schema,
            source=f"mcp:{tool.server}" if tool.server else tool.source,
            aliases=list(tool.aliases),
        )
        for tool in tools
    ]


def _fits(tool: AnyTool, pattern: str) -> bool:
    if pattern == tool.name or pattern in tool.aliases:
        return True
    return not tool.by_name_only and fnmatchcase(tool.name, pattern)


def _no_such(pattern: str, offered: Sequence[AnyTool]) -> str:
    names = [name for tool in offered for name in (tool.name, *tool.aliases)]
    hint = did_you_mean(pattern, names) or f"there are {', '.join(tool.name for tool in offered)}"
    return f"no tool is called {pattern!r}; {hint}"
