"""The plain-object style: name, description, parameters (JSON Schema) and ``async execute(**arguments)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ..tools import base
from ..tools.base import Effect, Kind
from ..tools.context import ToolContext
from .adapter import AbortSignal, ToolAdapter, as_text, call_function, failure_result, get_field


@dataclass(frozen=True, slots=True)
class ToolResult:
    """``success``, ``content`` and ``error``."""

    success: bool
    content: str = ""
    error: str | None = None


class Tool:
    """The base class; subclasses define the four members."""

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
        """Runs the tool."""
        raise NotImplementedError

    def to_schema(self) -> dict[str, Any]:
        """Returns the tool's declaration for the Messages API."""
        return {"name": self.name, "description": self.description, "input_schema": self.parameters}


@runtime_checkable
class PlainTool(Protocol):
    """An object with these members is a tool of this style, whatever its base class."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...

    async def execute(self, *args: Any, **kwargs: Any) -> Any: ...


class PlainToolAdapter(ToolAdapter):
    """Adapts a plain object. The result is ``content``, or ``error`` where ``success`` is false."""

    def __init__(self, tool: PlainTool, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> None:
        super().__init__(tool.name, tool.description, tool.parameters, kind, effect)
        self.tool = tool

    async def call(self, ctx: ToolContext, params: Any, signal: AbortSignal) -> base.ToolResult:
        answer = await call_function(self.tool.execute, **params)
        content = as_text(get_field(answer, "content"))
        if get_field(answer, "success"):
            return base.ToolResult(content)
        return failure_result(get_field(answer, "error"), content)
