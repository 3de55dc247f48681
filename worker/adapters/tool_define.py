"""The ``Tool.define`` style: ``define(id, info)`` for a static tool, ``define(id, info, init)`` for a dynamic one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, overload

from ...shared.errors import ErrorType, Misconfigured, ToolError
from ...shared.settings import Settings
from ..schemas.arguments import unknown_tool
from ..toolkit.registry import Registry, find_tool
from ..tools import base
from ..tools.base import AnyTool, Effect, Kind, Origin
from ..tools.bounded_result import bounded
from ..tools.context import InitContext
from .adapter import (
    AbortSignal,
    Parameters,
    ToolAdapter,
    ToolParameter,
    as_text,
    call_function,
    get_field,
    report_as_invalid,
    try_call,
)

Category = Literal["builtin", "custom", "mcp"]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """``title`` (short), ``output`` and ``metadata``; tools may return a mapping with the same keys instead."""

    title: str
    output: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The context of a call."""

    session_id: str | None
    message_id: str | None
    tool_call_id: str
    working_directory: str
    abort_signal: AbortSignal
    on_metadata: Callable[[str | None, Mapping[str, Any]], None]

    def metadata(self, update: Mapping[str, Any]) -> None:
        """Publishes a live update: ``{"title": …, …}``."""
        fields = dict(update)
        self.on_metadata(fields.pop("title", None), fields)


Execute = Callable[[Any, ToolContext], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInfo:
    """A static tool. ``id`` is the name for the model, ``name`` the one for people.

    A tool that is not ``enabled`` is not offered; calls of one with ``auto_execute`` need no approval.
    """

    id: str
    name: str
    description: str
    parameters: Parameters
    execute: Execute
    category: Category = "custom"
    enabled: bool = True
    auto_execute: bool = False
    format_validation_error: Callable[[Exception], str] | None = None


Init = Callable[[InitContext], Awaitable[Mapping[str, Any]]]
"""Returns description, parameters and execute."""


@dataclass(slots=True, kw_only=True)
class ToolInfoAsync:
    """A tool whose description or parameters are determined at run time. ``init`` runs once, and again when the skills
    differ from those of the last time."""

    id: str
    name: str
    init: Init
    category: Category = "custom"
    enabled: bool = True
    auto_execute: bool = False
    _initialized: tuple[Mapping[str, str], ToolInfo] | None = field(default=None, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def initialize(self, ctx: InitContext) -> ToolInfo:
        """Returns the tool for this run. Raises what ``init`` raises; the next run tries again."""
        async with self._lock:
            if self._initialized is None or self._initialized[0] != ctx.skills:
                fields: dict[str, Any] = {"id": self.id, "name": self.name, "category": self.category}
                fields |= {"enabled": self.enabled, "auto_execute": self.auto_execute}
                self._initialized = dict(ctx.skills), ToolInfo(**fields, **await self.init(ctx))
            return self._initialized[1]


class Tool:
    """The namespace of ``define``."""

    @overload
    @staticmethod
    def define(id: str, info: Mapping[str, Any]) -> ToolInfo: ...
    @overload
    @staticmethod
    def define(id: str, info: Mapping[str, Any], init: Init) -> ToolInfoAsync: ...
    @staticmethod
    def define(id: str, info: Mapping[str, Any], init: Init | None = None) -> ToolInfo | ToolInfoAsync:
        """Returns a static tool, or with ``init`` an async one. Raises Misconfigured for unknown or missing fields."""
        try:
            return ToolInfo(id=id, **info) if init is None else ToolInfoAsync(id=id, init=init, **info)
        except TypeError as error:
            raise Misconfigured(f"the tool {id!r} has an invalid definition: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """A tool in settings and in the older form of this style: a definition and a function."""

    id: str
    name: str
    description: str
    parameters: Sequence[ToolParameter] = ()
    enabled: bool = True
    auto_execute: bool = False
    category: Literal["builtin", "custom"] = "custom"
    icon: str | None = None
    source: Literal["builtin", "mcp"] | None = None
    server_id: str | None = None
    server_name: str | None = None

    def executed_by(self, execute: Execute) -> ToolInfo:
        """Returns the tool in the current form."""
        return ToolInfo(
            id=self.id,
            name=self.name,
            description=self.description,
            parameters=self.parameters,
            execute=execute,
            category="mcp" if self.source == "mcp" else self.category,
            enabled=self.enabled,
            auto_execute=self.auto_execute,
        )


class ToolInfoAdapter(ToolAdapter):
    """Adapts a static tool."""

    def __init__(self, info: ToolInfo, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> None:
        super().__init__(info.id, info.description, info.parameters, kind, effect)
        self.info = info
        self.trusted = info.auto_execute
        self.origin = Origin("mcp" if info.category == "mcp" else "builtin")

    def configured(self, settings: Settings) -> AnyTool | None:
        return self if self.info.enabled else None

    def title(self, params: Any) -> str:
        return self.info.name

    @contextmanager
    def explain_errors(self) -> Generator[None]:
        try:
            yield
        except ToolError as error:
            if self.info.format_validation_error is None:
                raise
            with report_as_invalid(self.name):
                message = self.info.format_validation_error(error)
            raise ToolError(error.type, message) from None

    async def call(self, ctx: base.ToolContext, params: Any, signal: AbortSignal) -> base.ToolResult:
        root = str(ctx.files.root)
        context = ToolContext(ctx.session_id, ctx.message_id, ctx.call_id, root, signal, ctx.on_metadata)
        answer = await call_function(self.info.execute, params, context)
        output, metadata = as_text(get_field(answer, "output")), dict(get_field(answer, "metadata") or {})
        return base.ToolResult(output, get_field(answer, "title") or "", metadata=metadata)


class AsyncToolInfoAdapter(ToolAdapter):
    """Adapts an async tool: ``ready`` returns a static one for each run."""

    def __init__(self, info: ToolInfoAsync, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> None:
        super().__init__(info.id, f"{info.name}. Its description is determined when a run begins.", {}, kind, effect)
        self.info = info
        self._adapter: ToolInfoAdapter | None = None

    def configured(self, settings: Settings) -> AnyTool | None:
        return self if self.info.enabled else None

    async def ready(self, ctx: InitContext) -> AnyTool:
        """Returns the initialized tool. Raises Misconfigured where ``init`` fails."""
        info = await try_call(self.info.initialize, ctx)
        if isinstance(info, Exception):
            raise Misconfigured(f"the tool {self.name} could not be initialized: {info}") from info
        if self._adapter is None or self._adapter.info is not info:
            self._adapter = ToolInfoAdapter(info, self.kind, self.effect)
        return self._adapter

    async def call(self, ctx: base.ToolContext, params: Any, signal: AbortSignal) -> base.ToolResult:
        raise ToolError(ErrorType.EXECUTION_FAILED, f"{self.name} was not initialized for this run")


@dataclass(frozen=True, slots=True)
class ToolExecutionResult:
    """The result of a call for callers of this style."""

    success: bool
    data: dict[str, Any] | None = None
    error: str | None = None

    @classmethod
    def of(cls, result: base.ToolResult) -> ToolExecutionResult:
        """Converts a result; one with an error is a failure without data."""
        if result.error is not None:
            return cls(False, error=result.for_model.removeprefix("Error: "))
        return cls(True, {"title": result.title, "output": result.content, "metadata": result.metadata})


async def execute_tool(
    tools: Registry,
    id: str,
    arguments: Mapping[str, Any],
    ctx: base.ToolContext,
    skills: Mapping[str, str] | None = None,
) -> ToolExecutionResult:
    """Executes one call outside a run, of a tool of any style or server, without checking the policy.

    Errors of the tool and its arguments are part of the result.
    """
    kit = {tool.name: tool for tool in tools}
    result = await try_call(_result, kit, id, arguments, ctx, InitContext(ctx.delegation_id, skills or {}))
    if isinstance(result, ToolError):
        return ToolExecutionResult(False, error=result.message)
    if isinstance(result, Exception):
        return ToolExecutionResult(False, error=f"{id} failed inside: {result}")
    return ToolExecutionResult.of(result)


async def _result(
    kit: Mapping[str, AnyTool], id: str, arguments: Mapping[str, Any], ctx: base.ToolContext, init: InitContext
) -> base.ToolResult:
    tool = await find_tool(kit, id).ready(init)
    if tool is None:
        raise unknown_tool(id, kit)
    result = await tool.run(ctx, tool.parse(arguments))
    return await bounded(result, tool, ctx)
