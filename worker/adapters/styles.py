"""The adapter of each style: where a tool declares itself, how it is called, and how its result reads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...shared.errors import ErrorType, Misconfigured, ToolError
from ...shared.settings import Settings
from ..text.output import AnsiOutput, Display, FileDiff, TodoList
from ..tools.base import AnyTool, Effect, InitContext, Kind, Origin, ToolContext, ToolResult, Touches
from .adapter import (
    AbortSignal,
    Parameters,
    ToolAdapter,
    as_text,
    call_function,
    failure_result,
    get_field,
    report_as_invalid,
    try_call,
)
from .base_classes import DefinedContext, ToolInfo, ToolPermission, UpdateOutput

ERROR_PREFIXES = ("Error:", "错误\uff1a")
"""Prefixes of texts that report an error."""


class PlainAdapter(ToolAdapter):
    """Adapts a plain object. The result is ``content``, or ``error`` where ``success`` is false."""

    async def call(self, ctx: ToolContext, params: Any, signal: AbortSignal) -> ToolResult:
        answer = await call_function(self.tool.execute, **params)
        content = as_text(get_field(answer, "content"))
        if get_field(answer, "success"):
            return ToolResult(content)
        return failure_result(get_field(answer, "error"), content)


class TableAdapter(ToolAdapter):
    """Adapts an entry of a table, with its name. A text that begins with an error prefix is a failure."""

    async def call(self, ctx: ToolContext, params: Any, signal: AbortSignal) -> ToolResult:
        text = as_text(await call_function(self.tool["execute"], params))
        for prefix in ERROR_PREFIXES:
            if text.startswith(prefix):
                return failure_result(text.removeprefix(prefix).strip())
        return ToolResult(text)


class ToolInfoAdapter(ToolAdapter):
    """Adapts a static tool of ``Tool.define``."""

    def __init__(self, tool: Any, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> None:
        super().__init__(tool, kind, effect)
        self.trusted = tool.auto_execute
        self.origin = Origin("mcp" if tool.category == "mcp" else "builtin")

    @staticmethod
    def declaration(tool: Any) -> tuple[str, str, Parameters]:
        return tool.id, tool.description, tool.parameters

    def configured(self, settings: Settings) -> AnyTool | None:
        return self if self.tool.enabled else None

    def title(self, params: Any) -> str:
        return self.tool.name

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        """Returns the valid arguments. The tool can replace the message of an error."""
        try:
            return super().parse(arguments)
        except ToolError as error:
            if self.tool.format_validation_error is None:
                raise
            with report_as_invalid(self.name):
                message = self.tool.format_validation_error(error)
            raise ToolError(error.type, message) from None

    async def call(self, ctx: ToolContext, params: Any, signal: AbortSignal) -> ToolResult:
        root = str(ctx.files.root)
        context = DefinedContext(ctx.session_id, ctx.message_id, ctx.call_id, root, signal, ctx.on_metadata)
        answer = await call_function(self.tool.execute, params, context)
        output, metadata = as_text(get_field(answer, "output")), dict(get_field(answer, "metadata") or {})
        return ToolResult(output, get_field(answer, "title") or "", metadata=metadata)


class AsyncToolInfoAdapter(ToolAdapter):
    """Adapts an async tool of ``Tool.define``: ``ready`` returns a static one for each run."""

    def __init__(self, tool: Any, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> None:
        super().__init__(tool, kind, effect)
        self._lock = asyncio.Lock()
        self._initialized: tuple[Mapping[str, str], ToolInfoAdapter] | None = None

    @staticmethod
    def declaration(tool: Any) -> tuple[str, str, Parameters]:
        return tool.id, f"{tool.name}. Its description is determined when a run begins.", {}

    def configured(self, settings: Settings) -> AnyTool | None:
        return self if self.tool.enabled else None

    async def ready(self, ctx: InitContext) -> AnyTool:
        """Returns the initialized tool. Raises Misconfigured where ``init`` fails."""
        async with self._lock:
            if self._initialized is None or self._initialized[0] != ctx.skills:
                found = await try_call(self.tool.init, ctx)
                if isinstance(found, Exception):
                    raise Misconfigured(f"the tool {self.name} could not be initialized: {found}") from found
                info = ToolInfo(**self.tool.shared_fields, **found)
                self._initialized = dict(ctx.skills), ToolInfoAdapter(info, self.kind, self.effect)
            return self._initialized[1]

    async def call(self, ctx: ToolContext, params: Any, signal: AbortSignal) -> ToolResult:
        raise ToolError(ErrorType.EXECUTION_FAILED, f"{self.name} was not initialized for this run")


class BaseToolAdapter(ToolAdapter):
    """Adapts a ``BaseTool``. AUTO: no call needs approval. CONFIRM: every call does, whatever it touches."""

    def __init__(self, tool: Any, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> None:
        super().__init__(tool, kind, effect)
        permission = str(get_field(getattr(tool, "permission", None), "value", ""))
        self.trusted = permission == ToolPermission.AUTO
        self.needs_approval = permission == ToolPermission.CONFIRM

    @staticmethod
    def declaration(tool: Any) -> tuple[str, str, Parameters]:
        return tool.name, tool.description, tool.get_parameters()

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        """Returns the arguments, validated by the tool's own ``validate_params``, too."""
        valid = super().parse(arguments)
        with report_as_invalid(self.name):
            if error := self.tool.validate_params(valid):
                raise ToolError(ErrorType.INVALID_TOOL_PARAMS, error)
        return valid

    async def call(self, ctx: ToolContext, params: Any, signal: AbortSignal) -> ToolResult:
        answer = await call_function(self.tool.execute, **params)
        data, metadata = get_field(answer, "data"), dict(get_field(answer, "metadata") or {})
        if get_field(answer, "success"):
            return ToolResult(as_text(data), data=data, metadata=metadata)
        return failure_result(get_field(answer, "error"), as_text(data), data=data, metadata=metadata)


@dataclass(frozen=True, slots=True)
class PreparedInvocation:
    """An invocation with its description and locations."""

    invocation: Any
    description: str
    locations: tuple[str, ...]


class BuilderAdapter(ToolAdapter):
    """Adapts a builder. The policy decides by its kind and locations whether a call needs approval."""

    def __init__(self, tool: Any, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> None:
        if tool.kind not in set(Kind):
            raise Misconfigured(f"the tool {tool.name} is of kind {tool.kind!r}; there are {', '.join(Kind)}")
        super().__init__(tool, Kind(tool.kind), effect)

    @staticmethod
    def declaration(tool: Any) -> tuple[str, str, Parameters]:
        declared = tool.schema
        parameters = declared.get("parametersJsonSchema", declared.get("parameters")) or {}
        return tool.name, declared.get("description", ""), parameters

    def parse(self, arguments: Mapping[str, Any]) -> PreparedInvocation:
        valid = super().parse(arguments)
        with report_as_invalid(self.name):
            invocation = self.tool.build(valid)
            paths = [get_field(location, "path", location) for location in invocation.tool_locations()]
            return PreparedInvocation(invocation, str(invocation.get_description()), tuple(map(str, paths)))

    def title(self, params: PreparedInvocation) -> str:
        return params.description

    def touches(self, params: PreparedInvocation) -> Touches:
        return Touches(paths=params.locations)

    async def call(self, ctx: ToolContext, params: PreparedInvocation, signal: AbortSignal) -> ToolResult:
        if self.kind.looks and await call_function(params.invocation.should_confirm_execute, signal):
            # Calls of this kind are allowed without approval, so no person has confirmed this one.
            reason = f"{self.name} requires confirmation of this call, but {self.kind} calls run without approval"
            raise ToolError(ErrorType.PERMISSION_DENIED, f"denied: {reason}. Do without it.")
        update: UpdateOutput = lambda output: ctx.metadata(output=str(output))  # noqa: E731
        answer = await call_function(params.invocation.execute, signal, update if self.tool.can_update_output else None)
        content, display = as_text(get_field(answer, "llm_content")), _display(get_field(answer, "return_display"))
        if error := get_field(answer, "error"):
            return failure_result(get_field(error, "message"), content, get_field(error, "type"), display=display)
        return ToolResult(content, display=display)


def _display(value: Any) -> Display:
    return value if isinstance(value, str | FileDiff | AnsiOutput | TodoList) else as_text(value)
