"""The registry of tools by name, and the selection of a run's kit from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ...shared.errors import Invalid, Misconfigured
from ...shared.fleet import ToolCard
from ...shared.log import log
from ...shared.settings import Settings
from ...shared.text import did_you_mean
from ..tools.base import AnyTool, InitContext
from ..tools.builtin import BUILTIN, DEFAULT_KIT

_ORDER = ("builtin", "discovered", "mcp")


class Registry:
    """A map from name to tool. Iterates over built-in tools, then discovered ones, then MCP tools by server."""

    def __init__(self, tools: Iterable[AnyTool] = ()) -> None:
        self._tools: dict[str, AnyTool] = {}
        for tool in tools:
            self.register(tool)

    def register(self, tool: AnyTool) -> None:
        """Adds a tool; one of the same name is replaced, with a warning."""
        if tool.name in self._tools:
            log.warning(
                "tool %s of %s replaces one of the same name", tool.name, tool.origin.server or tool.origin.source
            )
        self._tools[tool.name] = tool

    def unregister(self, name: str) -> None:
        """Removes a tool; an unknown name is ignored."""
        self._tools.pop(name, None)

    def get(self, name: str) -> AnyTool | None:
        """Returns the tool of that name or alias, or None."""
        return self._tools.get(name) or next((tool for tool in self if name in tool.aliases), None)

    def of_server(self, server: str) -> list[AnyTool]:
        return [tool for tool in self if tool.origin.server == server]

    def __iter__(self) -> Iterator[AnyTool]:
        """Yields built-in, discovered, then MCP tools by server name; each group in order of registration."""
        tools = self._tools.values()
        return iter(sorted(tools, key=lambda tool: (_ORDER.index(tool.origin.source), tool.origin.server or "")))

    def __len__(self) -> int:
        return len(self._tools)

    def kit(
        self,
        patterns: Sequence[str] | None,
        default: Sequence[str] = DEFAULT_KIT,
        is_excused: Callable[[str], bool] = lambda pattern: False,
    ) -> dict[str, AnyTool]:
        """Returns one run's tools by name. A pattern is a name, an alias or an fnmatch pattern; None: the default kit.

        Raises Invalid with a pointer to each pattern that matches no tool, unless ``is_excused`` returns true for it.
        """
        tools = tuple(self)
        if patterns is None:
            return {tool.name: tool for tool in tools if tool.name in default or tool.origin.source != "builtin"}
        chosen = {pattern: {tool.name for tool in tools if _matches(tool, pattern)} for pattern in patterns}
        if errors := [
            {"pointer": f"/tools/{at}", "detail": _unknown_pattern(pattern, tools)}
            for at, pattern in enumerate(patterns)
            if not (chosen[pattern] or is_excused(pattern))
        ]:
            raise Invalid("; ".join(error["detail"] for error in errors), errors)
        names = set[str]().union(*chosen.values())
        return {tool.name: tool for tool in tools if tool.name in names}

    def declarations(self) -> list[dict[str, Any]]:
        """Returns the Messages API declarations of all tools."""
        return [declaration(tool) for tool in self]


def declaration(tool: AnyTool) -> dict[str, Any]:
    """Returns the tool definition of the Messages API."""
    return {"name": tool.name, "description": tool.description, "input_schema": tool.schema}


def available_tools(settings: Settings, tools: Iterable[AnyTool] = BUILTIN) -> list[AnyTool]:
    """Returns the tools that a worker with these settings offers: enabled and fully configured. Logs them."""
    on = (tool.configured(settings) for tool in tools if _switch(tool, settings) is not False)
    tools = [tool for tool in on if tool is not None]
    log.info("runs are offered %d tools: %s", len(tools), ", ".join(tool.name for tool in tools))
    return tools


def default_kit(settings: Settings, tools: Iterable[AnyTool] = BUILTIN) -> tuple[str, ...]:
    """Returns the tool names for requests without ``tools``: DEFAULT_KIT, and tools switched on or set up."""
    on = [each.name for each in tools if each.availability.by_default or _switch(each, settings)]
    return (*DEFAULT_KIT, *(name for name in on if name not in DEFAULT_KIT))


def _switch(tool: AnyTool, settings: Settings) -> bool | None:
    return getattr(settings.tools, tool.availability.switch, None)


async def prepare_kit(kit: Mapping[str, AnyTool], ctx: InitContext, warn: Callable[[str], None]) -> dict[str, AnyTool]:
    """Returns the kit as prepared for one run. A tool whose preparation fails is left out, with a warning."""
    prepared: dict[str, AnyTool] = {}
    for name, tool in kit.items():
        try:
            ready = await tool.ready(ctx)
        except Misconfigured as error:
            warn(str(error))
            continue
        if ready is not None:
            prepared[name] = ready
    return prepared


def tool_cards(tools: Iterable[AnyTool]) -> list[ToolCard]:
    """Returns the tools as a worker announces them."""
    return [
        ToolCard(
            name=tool.name,
            description=tool.description,
            kind=tool.kind,
            effect=tool.effect,
            parameters=tool.schema,
            source=str(tool.origin),
            aliases=list(tool.aliases),
        )
        for tool in tools
    ]


def _matches(tool: AnyTool, pattern: str) -> bool:
    named = pattern == tool.name or pattern in tool.aliases
    return named or (not tool.availability.by_name_only and fnmatchcase(tool.name, pattern))


def _unknown_pattern(pattern: str, tools: Sequence[AnyTool]) -> str:
    names, aliases = [tool.name for tool in tools], {alias: tool.name for tool in tools for alias in tool.aliases}
    hint = did_you_mean(pattern, names, aliases=aliases) or f"there are {', '.join(names)}"
    return f"no tool is called {pattern!r}; {hint}"
