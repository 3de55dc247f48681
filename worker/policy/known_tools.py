"""The tools whose calls are judged without being made: those that are built in, and stand-ins for others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from deputize.shared.errors import ErrorType, ToolError
from deputize.shared.fleet import ToolTraits
from deputize.shared.settings import Settings
from deputize.worker.policy.base import PolicyCall
from deputize.worker.toolkit.registry import available_tools, find_tool
from deputize.worker.tools import BUILTIN
from deputize.worker.tools.base import AnyTool, Effect, Kind, Params, Tool, ToolContext, ToolResult
from deputize.worker.tools.traits import Origin, Source

MCP_NAME = re.compile("mcp__.+__.+")


class AbsentTool(Tool[Any]):
    """Stands for a tool of an MCP server, which is not asked: it may do anything, with any arguments."""

    kind = Kind.OTHER
    effect = Effect.EFFECTFUL
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
