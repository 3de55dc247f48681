"""What tools of all five designs have in common here: code of somebody else's that must not harm a run."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast

from pydantic import BaseModel, ValidationError

from shared.errors import ErrorType, Misconfigured, ToolError
from shared.log import log
from shared.wire import explain
from worker.schemas.arguments import invalid_arguments
from worker.threads import run_in_thread
from worker.toolkit.declared import DeclaredTool
from worker.tools.base import Effect, Kind, ToolResult
from worker.tools.context import ToolContext

ParameterType = Literal["string", "integer", "number", "boolean", "array", "object"]
P = ParamSpec("P")
T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Listed(Protocol):
    """One parameter of a list, whoever's class it is. ``enum`` may be missing."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def required(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ToolParameter:
    """One parameter. ``default`` is what the tool does without it; it is told, not filled in."""

    name: str
    type: ParameterType
    description: str
    required: bool = True
    default: Any = None
    enum: Sequence[Any] | None = None


Parameters = Mapping[str, Any] | type[BaseModel] | Iterable[Listed]


def json_schema(parameters: Parameters) -> dict[str, Any]:
    """The JSON Schema of the arguments, in whichever form they are declared."""
    if isinstance(parameters, type):
        return parameters.model_json_schema()
    if isinstance(parameters, Mapping):
        return dict(cast("Mapping[str, Any]", parameters))
    listed = list(parameters)
    return {
        "type": "object",
        "properties": {each.name: _property(each) for each in listed},
        "required": [each.name for each in listed if each.required],
    }


def _property(each: Listed) -> dict[str, Any]:
    more = {"enum": getattr(each, "enum", None), "default": None if each.required else getattr(each, "default", None)}
    return {"type": each.type, "description": each.description} | {
        key: value for key, value in more.items() if value is not None
    }


class AbortSignal:
    """Says to a call, in whichever thread, that it is no longer wanted."""

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


class Adapted(DeclaredTool):
    """A tool of another design. Nobody can ask it whether a call that was cut off has happened, so one that does more
    than look is effectful. Raises ``Misconfigured`` for a name that models do not accept, or parameters that are none.
    """

    def __init__(
        self, name: str, description: str, parameters: Parameters, kind: Kind = Kind.OTHER, effect: Effect | None = None
    ) -> None:
        if not _NAME.fullmatch(name):
            raise Misconfigured(f"the tool {name!r} cannot be offered: a name is 1 to 64 of A-Z a-z 0-9 _ and -")
        presumed = Effect.PURE if kind.looks else Effect.EFFECTFUL
        super().__init__(name, description, json_schema(parameters), kind=kind, effect=effect or presumed)
        self._model = parameters if isinstance(parameters, type) else None

    def converted(self, arguments: dict[str, Any]) -> Any:
        """The arguments; where a pydantic model declares them, an instance of it."""
        return arguments if self._model is None else _modelled(self.name, self._model, arguments)

    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        """The call in a task of its own: when the run is cancelled the signal is given first, then the task is."""
        signal = AbortSignal()
        doing = asyncio.ensure_future(self.call(ctx, params, signal))
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            if doing.cancelled() and not _cancelled():
                said = f"{self.name} gave up by itself. Try again, or do without it."
                raise ToolError(ErrorType.CANCELLED, said) from None
            signal.abort()
            doing.cancel()
            await _over(doing)
            raise

    @abstractmethod
    async def call(self, ctx: ToolContext, params: Any, signal: AbortSignal) -> ToolResult:
        """Calls the tool as its design does, and translates its answer."""


def _cancelled() -> bool:
    """Whether somebody wants the present task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _over(doing: asyncio.Future[Any]) -> None:
    """Waits for the end of what was cancelled, however often we are cancelled meanwhile."""
    while not doing.done():
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError:
            doing.cancel()
    if not doing.cancelled() and (error := doing.exception()):
        log.warning("a cancelled tool ended with: %s", error)


@contextmanager
def answered(tool: str) -> Generator[None]:
    """What a tool's own checks raise becomes the answer ``INVALID_TOOL_PARAMS``: it must not end the run."""
    try:
        yield
    except ToolError:
        raise
    except Exception as error:
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, f"invalid arguments for {tool}: {error}") from error


async def attempted(work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T | Exception:
    """Calls the code of others. Returns its result, or the exception that it raised."""
    try:
        return await work(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - nothing is known of the code; every caller reports the exception
        return error


async def called(execute: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function of either kind; one that is not async runs in a thread, because it may take its time."""
    if inspect.iscoroutinefunction(execute):
        return await execute(*args, **kwargs)
    result = await run_in_thread(execute, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result


def failed(message: str | None, content: str = "", type: str | None = None, **more: Any) -> ToolResult:
    """A failure in another design's words. A type that we do not know is ``EXECUTION_FAILED``."""
    known = ErrorType(type) if type in ErrorType.__members__.values() else ErrorType.EXECUTION_FAILED
    return ToolResult.failed(ToolError(known, message or content or "it failed without saying why"), content, **more)


def as_text(value: Any) -> str:
    """What the model reads of an answer that need not be text."""
    if isinstance(value, str) or value is None:
        return value or ""
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return json.dumps(value, ensure_ascii=False, default=str)


def part(value: Any, name: str, default: Any = None) -> Any:
    """A field of an answer that is an object or a mapping."""
    return value.get(name, default) if isinstance(value, Mapping) else getattr(value, name, default)


def _modelled(tool: str, model: type[BaseModel], arguments: Mapping[str, Any]) -> BaseModel:
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        raise invalid_arguments(tool, explain(error, model), model.model_fields) from None
