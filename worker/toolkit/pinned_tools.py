"""The tools a run was told of at its start stay the tools it is told of, whatever worker goes on with it.

Providers bind what a model thought to the exact list of tools, and a conversation whose tools come and go is refused.
So tools that exist only while a run lasts are written down with it; a later attempt has the same ones in the same
order, and where one cannot be had any more a stand-in says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, cast

from shared.errors import ErrorType, ToolError
from worker.models.base import ToolSpec
from worker.schemas.arguments import ArgumentSchema
from worker.toolkit.declared import DeclaredTool
from worker.toolkit.registry import Registry
from worker.tools.base import AnyTool, Effect, Kind, ToolResult
from worker.tools.context import ToolContext


@dataclass(frozen=True, slots=True)
class PinnedTool:
    """One tool as the run was told of it, and who it is: name, source, server and what the server calls it."""

    name: str
    description: str
    schema: dict[str, Any]
    effect: str
    source: str
    server: str | None
    remote: str | None

    @classmethod
    def of(cls, tool: AnyTool) -> Self:
        return cls(tool.name, tool.description, tool.schema, tool.effect.value, tool.source, tool.server, tool.remote)

    def is_told_of(self, tool: AnyTool | None) -> bool:
        identity = (self.source, self.server, self.remote)
        return tool is not None and identity == (tool.source, tool.server, tool.remote)


class UnavailableTool(DeclaredTool):
    """Answers for a tool that this worker does not have."""

    def __init__(self, told: PinnedTool) -> None:
        # It looks and changes nothing, so no rule stands before its answer. What the call of an earlier attempt may
        # have done is a matter of the real tool's effect.
        declared = ArgumentSchema(told.name, told.schema, None)  # an earlier attempt has judged it
        super().__init__(told.name, told.description, declared, kind=Kind.READ, effect=Effect(told.effect))
        self.source = cast(Literal["discovered", "mcp"], told.source)
        self.server = told.server
        self.remote = told.remote

    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        whose = f"the MCP server {self.server!r}" if self.server else "what offered it"
        raise ToolError(
            ErrorType.EXECUTION_FAILED,
            f"{self.name} cannot be had any more: {whose} is not reachable on this worker. Do without it, and say so.",
        )


def written(kit: Mapping[str, AnyTool]) -> str:
    """What is to be kept of a kit: the tools that another worker might not have, in their order."""
    return json.dumps([asdict(PinnedTool.of(tool)) for tool in kit.values() if tool.source != "builtin"])


def read(kept: str) -> list[PinnedTool]:
    return [PinnedTool(**each) for each in json.loads(kept)]


def restore(registry: Registry, told: Sequence[PinnedTool]) -> None:
    """Makes the registry hold what the run was told of and nothing else that may come and go."""
    there = {tool.name: tool for tool in registry if tool.source != "builtin"}
    for name in there:
        registry.unregister(name)
    for each in told:
        tool = there.get(each.name)
        registry.register(tool if tool and each.is_told_of(tool) else UnavailableTool(each))


def specs(told: Sequence[PinnedTool]) -> dict[str, ToolSpec]:
    """What models are told of those tools, by name: the very same words as before."""
    return {each.name: ToolSpec(each.name, each.description, each.schema) for each in told}
