"""``Tool.define(id, info)`` makes a tool known at once, ``Tool.define(id, info, init)`` one that must be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, overload

from shared.errors import ErrorType, Misconfigured, ToolError
from shared.settings import Settings
from shared.tokens import estimate
from worker.adapters.foreign import (
    AbortSignal,
    Adapted,
    Parameters,
    ToolParameter,
    answered,
    as_text,
    attempted,
    called,
    part,
)
from worker.schemas.arguments import unknown_tool
from worker.toolkit.registry import Registry, find
from worker.tools import base
from worker.tools.base import AnyTool, Effect, Kind
from worker.tools.bounded_result import bounded
from worker.tools.context import InitContext

Category = Literal["builtin", "custom", "mcp"]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """``title`` (short), ``output`` and ``metadata``; a mapping of the same keys does as well."""

    title: str
    output: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a call is told of where it runs."""

    session_id: str | None
    message_id: str | None
    tool_call_id: str
    working_directory: str
    abort_signal: AbortSignal
    on_metadata: Callable[[str | None, Mapping[str, Any]], None]

    def metadata(self, update: Mapping[str, Any]) -> None:
        """Live news: ``{"title": …, …}``."""
        fields = dict(update)
        self.on_metadata(fields.pop("title", None), fields)


Execute = Callable[[Any, ToolContext], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInfo:
    """A tool known at once. ``id`` is what the model calls it, ``name`` what people read.

    One that is not ``enabled`` is not offered; ``auto_execute`` is the operator's word that nobody need be asked.
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
"""Gives description, parameters and execute."""


@dataclass(slots=True, kw_only=True)
class ToolInfoAsync:
    """A tool whose description or parameters must be found out. ``init`` is run once, and again only where
    the skills it was told of are others."""

    id: str
    name: str
    init: Init
    category: Category = "custom"
    enabled: bool = True
    auto_execute: bool = False
    _initialized: tuple[Mapping[str, str], ToolInfo] | None = field(default=None, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def initialized(self, ctx: InitContext) -> ToolInfo:
        """The tool as it is for this run. Raises what ``init`` raises; the next run tries again."""
        async with self._lock:
            if self._initialized is None or self._initialized[0] != ctx.skills:
                known: dict[str, Any] = {"id": self.id, "name": self.name, "category": self.category}
                known |= {"enabled": self.enabled, "auto_execute": self.auto_execute}
                self._initialized = dict(ctx.skills), ToolInfo(**known, **await self.init(ctx))
            return self._initialized[1]


class Tool:
    """The one way to make a tool in that design."""

    @overload
    @staticmethod
    def define(id: str, info: Mapping[str, Any]) -> ToolInfo: ...
    @overload
    @staticmethod
    def define(id: str, info: Mapping[str, Any], init: Init) -> ToolInfoAsync: ...
    @staticmethod
    def define(id: str, info: Mapping[str, Any], init: Init | None = None) -> ToolInfo | ToolInfoAsync:
        """A static tool, or with ``init`` an async one. Raises ``Misconfigured``."""
        try:
            return ToolInfo(id=id, **info) if init is None else ToolInfoAsync(id=id, init=init, **info)
        except TypeError as error:
            raise Misconfigured(f"the tool {id!r} is not defined right: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """A tool as that design's settings and its older tools describe it."""

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
        """The older form of a tool (a definition and a function) in the present one."""
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


class AdaptedInfo(Adapted):
    """A static tool."""

    def __init__(self, info: ToolInfo, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> None:
        super().__init__(info.id, info.description, info.parameters, kind, effect)
        self.info = info
        self.trusted = info.auto_execute
        self.source = "mcp" if info.category == "mcp" else "builtin"

    def configured(self, settings: Settings) -> AnyTool | None:
        return self if self.info.enabled else None

    def title(self, params: Any) -> str:
        return self.info.name

    @contextmanager
    def explained(self) -> Generator[None]:
        try:
            yield
        except ToolError as error:
            if self.info.format_validation_error is None:
                raise
            with answered(self.name):
                said = self.info.format_validation_error(error)
            raise ToolError(error.type, said) from None

    async def call(self, ctx: base.ToolContext, params: Any, signal: AbortSignal) -> base.ToolResult:
        place = str(ctx.files.root)
        context = ToolContext(ctx.session_id, ctx.message_id, ctx.call_id, place, signal, ctx.on_metadata)
        answer = await called(self.info.execute, params, context)
        output, metadata = as_text(part(answer, "output")), dict(part(answer, "metadata") or {})
        return base.ToolResult(output, part(answer, "title") or "", metadata=metadata)


class AdaptedInfoAsync(Adapted):
    """An async tool: for each run it becomes a static one."""

    def __init__(self, info: ToolInfoAsync, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> None:
        super().__init__(info.id, f"{info.name}. What it does is found out when a run begins.", {}, kind, effect)
        self.info = info
        self._made: AdaptedInfo | None = None

    def configured(self, settings: Settings) -> AnyTool | None:
        return self if self.info.enabled else None

    async def ready(self, ctx: InitContext) -> AnyTool:
        """Raises ``Misconfigured`` where the tool cannot say what it is."""
        info = await attempted(self.info.initialized, ctx)
        if isinstance(info, Exception):
            raise Misconfigured(f"the tool {self.name} could not be made ready: {info}") from info
        if self._made is None or self._made.info is not info:
            self._made = AdaptedInfo(info, self.kind, self.effect)
        return self._made

    async def call(self, ctx: base.ToolContext, params: Any, signal: AbortSignal) -> base.ToolResult:
        raise ToolError(ErrorType.EXECUTION_FAILED, f"{self.name} was not made ready for this run")


@dataclass(frozen=True, slots=True)
class ToolExecutionResult:
    """What a caller of that design gets for a call."""

    success: bool
    data: dict[str, Any] | None = None
    error: str | None = None

    @classmethod
    def of(cls, result: base.ToolResult) -> ToolExecutionResult:
        """A good result is wrapped; what an MCP server calls an error is none."""
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
    """One call outside a run, of a tool of any design or server.

    Whoever calls it has decided that it may be done. What the tool or its arguments do wrong is the answer.
    """
    kit = {tool.name: tool for tool in tools}
    result = await attempted(_result, kit, id, arguments, ctx, InitContext(ctx.delegation_id, skills or {}))
    if isinstance(result, ToolError):
        return ToolExecutionResult(False, error=result.message)
    if isinstance(result, Exception):
        return ToolExecutionResult(False, error=f"{id} failed inside: {result}")
    return ToolExecutionResult.of(result)


async def _result(
    kit: Mapping[str, AnyTool], id: str, arguments: Mapping[str, Any], ctx: base.ToolContext, init: InitContext
) -> base.ToolResult:
    tool = await find(kit, id).ready(init)
    if tool is None:
        raise unknown_tool(id, kit)
    result = await tool.run(ctx, await tool.accept(ctx, arguments))
    return await bounded(result, tool, ctx, estimate)
