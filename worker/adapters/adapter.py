"""Adapters: where a tool of another style declares itself, how it is called, and how its result reads.

Third-party code runs so that its failures do not end the run.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, ParamSpec, TypeVar

from pydantic import BaseModel, ValidationError

from ...shared.errors import ErrorType, Misconfigured, ToolError
from ...shared.log import log
from ...shared.settings import Settings
from ...shared.wire import explain
from ..schemas.arguments import invalid_arguments
from ..text.output import AnsiOutput, FileDiff, TodoList
from ..threads import run_in_thread
from ..toolkit.sources import SchemaTool
from ..tools.base import AnyTool, Effect, InitContext, Kind, Origin, Tool, ToolContext, ToolResult, Touches
from .declarations import (
    AbortSignal,
    DefinedContext,
    Parameters,
    TableEntry,
    ToolInfo,
    ToolInfoAsync,
    ToolPermission,
    UpdateOutput,
    json_schema,
)

ERROR_PREFIXES = ("Error:", "错误\uff1a")
"""Prefixes of texts that report an error."""
P = ParamSpec("P")
T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ToolAdapter(SchemaTool):
    """A tool of another style. It cannot be probed after a crash, so its effect defaults to effectful unless its kind
    only reads. Raises Misconfigured for a name that models do not accept, or an invalid parameter schema.
    """

    def __init__(self, tool: Any, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> None:
        name, description, parameters = self.declaration(tool)
        if not _NAME.fullmatch(name):
            raise Misconfigured(f"the tool {name!r} cannot be offered: a name is 1 to 64 of A-Z a-z 0-9 _ and -")
        super().__init__(name, description, json_schema(parameters), kind=kind, effect=effect)
        self.tool = tool
        self._model = parameters if isinstance(parameters, type) else None

    @staticmethod
    def declaration(tool: Any) -> tuple[str, str, Parameters]:
        return get_field(tool, "name"), get_field(tool, "description"), get_field(tool, "parameters")

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        """Returns the valid arguments, or an instance of the pydantic model that declares them."""
        valid = super().parse(arguments)
        if self._model is None:
            return valid
        try:
            return self._model.model_validate(valid)
        except ValidationError as error:
            raise invalid_arguments(self.name, explain(error, self._model), self._model.model_fields) from None

    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        """Runs the call in its own task: cancellation of the run first sets the signal, then cancels the task."""
        signal = AbortSignal()
        task = asyncio.ensure_future(self.call(ctx, params, signal))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if task.cancelled() and not (current and current.cancelling()):
                message = f"{self.name} cancelled itself. Try again, or do without it."
                raise ToolError(ErrorType.CANCELLED, message) from None
            signal.abort()
            task.cancel()
            await _wait_cancelled(task)
            raise

    @abstractmethod
    async def call(self, ctx: ToolContext, params: Any, signal: AbortSignal) -> ToolResult:
        """Calls the tool by the conventions of its style, and converts its result."""


async def _wait_cancelled(task: asyncio.Future[Any]) -> None:
    """Waits until a cancelled task has ended; cancellation of the caller meanwhile is passed on to it."""
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
    if not task.cancelled() and (error := task.exception()):
        log.warning("a cancelled tool ended with: %s", error)


@contextmanager
def report_as_invalid(tool: str) -> Generator[None]:
    """Converts exceptions of a tool's own validation to ``ToolError(INVALID_TOOL_PARAMS)``."""
    try:
        yield
    except ToolError:
        raise
    except Exception as error:
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, f"invalid arguments for {tool}: {error}") from error


async def try_call(function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T | Exception:
    """Calls third-party code. Returns its result, or the exception that it raised."""
    try:
        return await function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - third-party code may raise anything; every caller reports it
        return error


async def call_function(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls an async function, or a blocking one in a thread. Returns its result."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    result = await run_in_thread(function, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result


def failure_result(message: str | None, content: str = "", type: str | None = None, **more: Any) -> ToolResult:
    """Returns a failed result with a tool's own message. An unknown type becomes ``EXECUTION_FAILED``."""
    known = ErrorType(type) if type in ErrorType.__members__.values() else ErrorType.EXECUTION_FAILED
    error = ToolError(known, message or content or "it failed without an error message")
    return ToolResult.failed(error, content, **more)


def as_text(value: Any) -> str:
    if isinstance(value, str) or value is None:
        return value or ""
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return json.dumps(value, ensure_ascii=False, default=str)


def get_field(value: Any, name: str, default: Any = None) -> Any:
    return value.get(name, default) if isinstance(value, Mapping) else getattr(value, name, default)


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
    """Adapts an async tool of ``Tool.define``: ``ready`` returns a static one for each run, which is then called."""

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


class PreparedInvocation(NamedTuple):
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
        content, display = as_text(get_field(answer, "llm_content")), get_field(answer, "return_display")
        if not isinstance(display, str | FileDiff | AnsiOutput | TodoList):
            display = as_text(display)
        if error := get_field(answer, "error"):
            return failure_result(get_field(error, "message"), content, get_field(error, "type"), display=display)
        return ToolResult(content, display=display)


_STYLES: tuple[tuple[type[ToolAdapter], tuple[str, ...]], ...] = (
    (BuilderAdapter, ("name", "display_name", "kind", "can_update_output", "schema", "build")),
    (BaseToolAdapter, ("name", "description", "get_parameters", "validate_params", "execute")),
    (PlainAdapter, ("name", "description", "parameters", "execute")),
)
"""The styles whose tools are recognized by their members, whatever their base class; the first match counts."""


def adapt(tool: object, *, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> AnyTool:
    """Returns an adapter for a tool of any style, or the tool itself if it needs none.

    ``kind`` and ``effect`` apply to styles that do not declare them (a builder declares its kind).
    Raises TypeError for an object that is not a tool, and Misconfigured for one that cannot be offered.
    """
    if isinstance(tool, Tool):
        return tool
    if isinstance(tool, ToolInfo):
        return ToolInfoAdapter(tool, kind, effect)
    if isinstance(tool, ToolInfoAsync):
        return AsyncToolInfoAdapter(tool, kind, effect)
    for adapter, members in _STYLES:
        # A class has the members of its instances, but is not a tool.
        if not isinstance(tool, type) and all(hasattr(tool, member) for member in members):
            return adapter(tool, kind, effect)
    raise TypeError(f"Unsupported tool type: {type(tool)}")


def adapt_table(table: Mapping[str, TableEntry]) -> list[TableAdapter]:
    return [TableAdapter({"name": name, **entry}) for name, entry in table.items()]
