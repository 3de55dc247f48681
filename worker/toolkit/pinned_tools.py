"""Pinning of a run's MCP and discovered tools, so that every attempt declares the same tools to the model.

Providers sign a model's thinking together with the exact list of tools, and reject a conversation whose tools change.
So these tools are stored in the run's record; a later attempt declares the same ones in the same order, and one that
is no longer available fails its calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self, cast

from ...shared.errors import ErrorType, ToolError
from ..models.base import ToolSpec
from ..tools.base import AnyTool, Effect, Kind, Origin, Params, Source, Tool, ToolContext, ToolResult
from .registry import Registry


@dataclass(frozen=True, slots=True)
class PinnedTool:
    """One tool as the model knows it, with its identity: source, server, and its name on the server."""

    name: str
    description: str
    schema: dict[str, Any]
    effect: str
    source: str
    server: str | None
    remote: str | None

    @classmethod
    def from_tool(cls, tool: AnyTool) -> Self:
        return cls(tool.name, tool.description, tool.schema, tool.effect.value, **asdict(tool.origin))

    def matches(self, tool: AnyTool | None) -> bool:
        """Returns whether it is the same tool: same source, server and name on the server."""
        return tool is not None and tool.origin == self.origin

    @property
    def origin(self) -> Origin:
        return Origin(cast(Source, self.source), self.server, self.remote)


class UnavailableTool(Tool[Any]):
    """Stands for a pinned tool that this worker does not have; every call fails, whatever its arguments are."""

    params = Params

    def __init__(self, pinned: PinnedTool) -> None:
        # The kind is READ, so that no rule asks for approval of a call that only fails. The effect is the real tool's,
        # because it decides about calls that were running when an earlier attempt ended.
        self.name, self.kind, self.effect = pinned.name, Kind.READ, Effect(pinned.effect)
        self.origin = pinned.origin
        self._pinned = pinned

    @property
    def description(self) -> str:
        return self._pinned.description

    @property
    def schema(self) -> dict[str, Any]:
        return self._pinned.schema

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        return arguments

    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        source = f"the MCP server {self.origin.server!r}" if self.origin.server else "its source"
        raise ToolError(
            ErrorType.EXECUTION_FAILED,
            f"{self.name} is no longer available: {source} is not reachable on this worker. Do without it, and say so.",
        )


def dumps(kit: Mapping[str, AnyTool]) -> str:
    """Serializes the MCP and discovered tools of a kit, in order."""
    return json.dumps([asdict(PinnedTool.from_tool(tool)) for tool in kit.values() if tool.origin.source != "builtin"])


def loads(text: str) -> list[PinnedTool]:
    """Returns the tools from ``dumps``."""
    return [PinnedTool(**fields) for fields in json.loads(text)]


def restore(registry: Registry, pinned: Sequence[PinnedTool]) -> None:
    """Replaces the registry's MCP and discovered tools by the pinned ones, as UnavailableTool where one is missing."""
    available = {tool.name: tool for tool in registry if tool.origin.source != "builtin"}
    for name in available:
        registry.unregister(name)
    for each in pinned:
        tool = available.get(each.name)
        registry.register(tool if tool and each.matches(tool) else UnavailableTool(each))


def specs(pinned: Sequence[PinnedTool]) -> dict[str, ToolSpec]:
    """Returns the tools' specs by name, identical to those of the first attempt."""
    return {each.name: ToolSpec(each.name, each.description, each.schema) for each in pinned}
