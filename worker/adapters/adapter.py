"""The base class of adapters: runs third-party tool code so that its failures do not end the run."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

from pydantic import BaseModel, ValidationError

from ...shared.errors import ErrorType, Misconfigured, ToolError
from ...shared.log import log
from ...shared.wire import explain
from ..schemas.arguments import invalid_arguments
from ..threads import run_in_thread
from ..toolkit.schema_tool import SchemaTool
from ..tools.base import Effect, Kind, ToolContext, ToolResult

Parameters = Mapping[str, Any] | type[BaseModel] | Iterable[Any]
"""A JSON Schema, a pydantic model, or a list of objects such as ``ToolParameter``."""
P = ParamSpec("P")
T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def json_schema(parameters: Parameters) -> dict[str, Any]:
    """Returns the JSON Schema of parameters declared in any form."""
    if isinstance(parameters, type):
        return parameters.model_json_schema()
    if isinstance(parameters, Mapping):
        return dict(cast("Mapping[str, Any]", parameters))
    items = list(parameters)
    return {
        "type": "object",
        "properties": {item.name: _property(item) for item in items},
        "required": [item.name for item in items if item.required],
    }


def _property(item: Any) -> dict[str, Any]:
    optional = {
        "enum": getattr(item, "enum", None),
        "default": None if item.required else getattr(item, "default", None),
    }
    return {"type": item.type, "description": item.description} | {
        key: value for key, value in optional.items() if value is not None
    }


class AbortSignal:
    """Signals to a call, in any thread, that it is cancelled."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def aborted(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        """Returns when the call is aborted."""
        await self._event.wait()

    def abort(self) -> None:
        self._event.set()


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
        """Returns the tool's name, description and parameters."""
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
            if task.cancelled() and not _is_cancelled():
                message = f"{self.name} cancelled itself. Try again, or do without it."
                raise ToolError(ErrorType.CANCELLED, message) from None
            signal.abort()
            task.cancel()
            await _wait_cancelled(task)
            raise

    @abstractmethod
    async def call(self, ctx: ToolContext, params: Any, signal: AbortSignal) -> ToolResult:
        """Calls the tool by the conventions of its style, and converts its result."""


def _is_cancelled() -> bool:
    """Returns whether cancellation of the current task was requested."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


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
    return ToolResult.failed(
        ToolError(known, message or content or "it failed without an error message"), content, **more
    )


def as_text(value: Any) -> str:
    """Returns a text for the model of a result of any type."""
    if isinstance(value, str) or value is None:
        return value or ""
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return json.dumps(value, ensure_ascii=False, default=str)


def get_field(value: Any, name: str, default: Any = None) -> Any:
    """Returns a field of a mapping, or an attribute of an object."""
    return value.get(name, default) if isinstance(value, Mapping) else getattr(value, name, default)
