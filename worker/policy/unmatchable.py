"""Rules of files that no call can match: a misspelt name would let through in silence what it should deny."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from deputize.shared.errors import Misconfigured
from deputize.shared.fleet import MCP
from deputize.shared.request import ApprovalMode
from deputize.shared.settings import Settings, environment
from deputize.shared.text import did_you_mean
from deputize.shared.trust import configuration_folder
from deputize.worker.mcp.config import find_config_file, server_names
from deputize.worker.mcp.entry import prefix
from deputize.worker.policy.base import PolicyCall, PolicyContext
from deputize.worker.policy.decision import Decision
from deputize.worker.policy.matchers import MATCHERS, is_named
from deputize.worker.policy.rule_fields import RuleFields
from deputize.worker.policy.rule_file import FileRule
from deputize.worker.tools import BUILTIN
from deputize.worker.tools.base import AnyTool, Tool
from deputize.worker.tools.context import Touches

TOUCHED: Mapping[str, tuple[str, Sequence[str] | None]] = {
    "command_prefix": ("has a command line", ("bash",)),
    "host": ("names hosts", ("web_fetch", "web_search")),
    "path": ("names paths", None),
}
"""What a matcher needs of a call, and the built-in tools whose calls have it; None: all others that touch anything."""


class Known:
    """What a worker knows of the tools that rules may name."""

    def __init__(self, settings: Settings, tools: Sequence[AnyTool]) -> None:
        self.tools = tools
        self.servers = _servers(settings)
        self.has_others = settings.tools.discovery_command is not None
        """Whether there are tools whose names only a run knows."""

    def check(self, rules: Sequence[FileRule]) -> list[str]:
        """Returns what is wrong with rules that allow. Raises Misconfigured for those that deny or ask."""
        found: dict[bool, list[str]] = {True: [], False: []}
        for rule in rules:
            for why in self._faults(rule.fields):
                about = f"{rule.place}: the rule {rule.fields.name!r} cannot match as it is meant: {why}"
                found[rule.fields.decision is Decision.ALLOW].append(about)
        if found[False]:
            raise Misconfigured("; ".join(found[False]))
        return found[True]

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
        found = find_config_file(settings.mcp_file, Path.cwd(), own, settings.trusted_folder)
        return server_names(found) if found else ()
    except (Misconfigured, OSError, RecursionError):
        return ()


def _fits(tool: AnyTool, values: Mapping[str, object]) -> bool:
    keys = [key for key in ("tool", "server", "kind", "annotations") if key in values]
    call, anywhere = PolicyCall(tool, Touches()), PolicyContext(ApprovalMode.ASK)
    return all(MATCHERS[key](values[key], False)(call, anywhere) for key in keys)


def _touches(tool: AnyTool, named: Sequence[str] | None) -> bool:
    if type(tool).touches is Tool.touches:
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
