"""Plain objects: a class with name, description, parameters (JSON Schema) and ``async execute(**arguments)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from worker.adapters.foreign import AbortSignal, Adapted, as_text, called, failed, part
from worker.tools import base
from worker.tools.base import Effect, Kind
from worker.tools.context import ToolContext


@dataclass(frozen=True, slots=True)
class ToolResult:
    """``success``, ``content`` and ``error``."""

    success: bool
    content: str = ""
    error: str | None = None


class Tool:
    """The base class: each of the four members is the subclass's."""

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def description(self) -> str:
        raise NotImplementedError

    @property
    def parameters(self) -> dict[str, Any]:
        raise NotImplementedError

    async def execute(self, *args: Any, **kwargs: Any) -> ToolResult:
        """Does the work."""
        raise NotImplementedError

    def to_schema(self) -> dict[str, Any]:
        """The tool as the Messages API wants it declared."""
        return {"name": self.name, "description": self.description, "input_schema": self.parameters}


@runtime_checkable
class PlainTool(Protocol):
    """Whatever has these four is a tool of this design, whoever's base class it has."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...

    async def execute(self, *args: Any, **kwargs: Any) -> Any: ...


class AdaptedPlain(Adapted):
    """Its arguments are checked before; its answer is ``content``, or ``error`` where ``success`` is false."""

    def __init__(self, tool: PlainTool, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> None:
        super().__init__(tool.name, tool.description, tool.parameters, kind, effect)
        self.tool = tool

    async def call(self, ctx: ToolContext, params: Any, signal: AbortSignal) -> base.ToolResult:
        answer = await called(self.tool.execute, **params)
        content = as_text(part(answer, "content"))
        if part(answer, "success"):
            return base.ToolResult(content)
        return failed(part(answer, "error"), content)
