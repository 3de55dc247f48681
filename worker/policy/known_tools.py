"""The tools that the policy knows without a run: to judge calls that are not made, and rules that no call can match."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from ...shared.errors import ErrorType, Misconfigured, ToolError
from ...shared.fleet import MCP, ToolTraits
from ...shared.request import ApprovalMode
from ...shared.settings import Settings, environment
from ...shared.settings.files import configuration_folder
from ...shared.text import did_you_mean
from ..mcp.config import entries, find_config_file, prefix
from ..toolkit.registry import available_tools, find_tool
from ..tools import BUILTIN
from ..tools.base import AnyTool, Effect, Kind, Origin, Params, Source, Tool, ToolContext, ToolResult, Touches
from .base import Decision, PolicyCall, PolicyContext
from .matchers import MATCHERS, is_named
from .rule_file import FileRule, RuleFields

MCP_NAME = re.compile("mcp__.+__.+")


class AbsentTool(Tool[Any]):
    """Stands for a tool of an MCP server, which is not asked: it may do anything, with any arguments."""

    kind = Kind.OTHER
    params = Params

    def __init__(self, name: str) -> None:
        self.name = name
        _, server, *remote = name.split("__")
        self.origin = Origin("mcp", server, "__".join(remote))

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        return arguments

    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        raise ToolError(ErrorType.UNKNOWN_TOOL, f"{self.name} is only explained here, and cannot be called.")


class RecordedTool(AbsentTool):
    """Stands for a tool that is not built in, with the traits that a run has recorded."""

    def __init__(self, traits: ToolTraits) -> None:
        self.name = traits.name
        self.kind, self.effect = Kind(traits.kind), Effect(traits.effect)
        self.origin = Origin(cast(Source, traits.source), traits.server, traits.remote)
        self.trusted, self.needs_approval = traits.trusted, traits.needs_approval


class KnownTools:
    """All tools that are built in, as configured where they are available, and further ones that a run has recorded."""

    def __init__(self, settings: Settings, tools: Sequence[AnyTool] = BUILTIN) -> None:
        self._kit: dict[str, AnyTool] = {tool.name: tool for tool in (*tools, *available_tools(settings, tools))}
        self._recorded: dict[str, RecordedTool] = {}

    def record(self, further: Iterable[ToolTraits]) -> None:
        """Sets the further tools: those of one run."""
        self._recorded = {traits.name: RecordedTool(traits) for traits in further}

    def call(self, name: str, arguments: Mapping[str, Any]) -> PolicyCall:
        """Returns the policy's input for a call. Raises ToolError for an unknown tool and wrong arguments."""
        tool = self._recorded.get(name) or find_tool(self._kit, name)
        return PolicyCall.of(tool, tool.parse(arguments), arguments)

    def absent(self, name: str, arguments: Mapping[str, Any]) -> PolicyCall:
        """Like ``call``, for the name of a tool of any MCP server."""
        return PolicyCall.of(AbsentTool(name), arguments, arguments)


TOUCHED: Mapping[str, tuple[str, Sequence[str] | None]] = {
    "command_prefix": ("has a command line", ("bash",)),
    "host": ("names hosts", ("web_fetch", "web_search")),
    "path": ("names paths", None),
}
"""What a matcher needs of a call, and the built-in tools whose calls have it; None: all others that touch anything."""


class Known:
    """What a worker knows of the tools that rules may name: a misspelt name would let through what it should deny."""

    def __init__(self, settings: Settings, tools: Sequence[AnyTool]) -> None:
        self.tools = tools
        self.servers = _servers(settings)
        self.has_others = settings.tools.discovery_command is not None
        """Whether there are tools whose names only a run knows."""

    def check(self, rules: Sequence[FileRule]) -> list[str]:
        """Returns what is wrong with rules that allow. Raises Misconfigured for those that deny or ask."""
        faults: dict[bool, list[str]] = {True: [], False: []}
        for rule in rules:
            for why in self._faults(rule.fields):
                about = f"{rule.place}: the rule {rule.fields.name!r} cannot match as it is meant: {why}"
                faults[rule.fields.decision is Decision.ALLOW].append(about)
        if faults[False]:
            raise Misconfigured("; ".join(faults[False]))
        return faults[True]

    def _faults(self, fields: RuleFields) -> Iterator[str]:
        for name in fields.tool or ():
            if not (any(is_named(tool, name) for tool in self.tools) or self._may_be_foreign(name)):
                names = [tool.name for tool in self.tools] + [prefix(server) + "*" for server in self.servers]
                yield f"there is no tool {name!r}{_near(name, names)}"
        for name in (*(fields.server or ()), *(each[4:] for each in fields.taint or () if each.startswith("mcp:"))):
            if self.servers and not any(fnmatchcase(server, name) for server in self.servers):
                yield f"there is no MCP server {name!r}{_near(name, self.servers)}"
        values = fields.model_dump(exclude_none=True)
        tools = [tool for tool in self.tools if _fits(tool, values)]
        for key, (what, named) in TOUCHED.items():
            if key in values and not any(_touches(tool, named) for tool in tools):
                yield f"{key}: no call of {_listed(tools)} {what}"
        if not self._has_foreign(fields):
            for name in fields.argument or ():
                known = {each for tool in tools for each in _parameters(tool)}
                if name not in known and all(_parameters(tool) for tool in tools):
                    yield f"argument: {_listed(tools)} has no parameter {name!r}{_near(name, known)}"

    def _has_foreign(self, fields: RuleFields) -> bool:
        """Returns whether a tool that is not known here may have such calls."""
        if fields.tool is None:
            return fields.server is not None or bool(self.servers) or self.has_others
        return any(self._may_be_foreign(name) for name in fields.tool)

    def _may_be_foreign(self, name: str) -> bool:
        if self.has_others:
            return True
        begin = re.split(r"[*?\[]", name, maxsplit=1)[0]
        prefixes = [prefix(server) for server in self.servers] or [MCP]
        return any(begin.startswith(each) or (begin != name and each.startswith(begin)) for each in prefixes)


def _servers(settings: Settings) -> Sequence[str]:
    """Returns the names of the configured MCP servers; none where their file cannot be read, which runs report."""
    if settings.tools.enable_mcp is False:
        return ()
    try:
        own = configuration_folder(environment())
        found = find_config_file(settings.mcp_file, Path.cwd(), own)
        return [*entries(found)] if found else ()
    except (Misconfigured, OSError, RecursionError):
        return ()


def _fits(tool: AnyTool, values: Mapping[str, object]) -> bool:
    keys = [key for key in ("tool", "server", "kind", "annotations") if key in values]
    call, anywhere = PolicyCall(tool, Touches()), PolicyContext(ApprovalMode.ASK)
    return all(MATCHERS[key](values[key], False)(call, anywhere) for key in keys)


def _touches(tool: AnyTool, named: Sequence[str] | None) -> bool:
    if type(tool).touches is Tool.touches and not tool.params.workspace_paths:
        return False
    if type(tool) not in map(type, BUILTIN):
        return True
    others = [name for _, names in TOUCHED.values() for name in names or ()]
    return tool.name in named if named else tool.name not in others


def _parameters(tool: AnyTool) -> Sequence[str]:
    return [*tool.params.model_fields] or [*tool.schema.get("properties", {})]


def _near(name: str, known: Sequence[str] | set[str]) -> str:
    near = did_you_mean(name[:100], sorted(known), 1)
    return f"; {near}" if near else ""


def _listed(tools: Sequence[AnyTool]) -> str:
    names = [tool.name for tool in tools]
    return " or ".join(names) if 0 < len(names) <= 4 else "any tool that it names" if names else "a tool that it names"
