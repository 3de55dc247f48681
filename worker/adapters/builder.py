"""The builder style: an object declares the tool, and builds an invocation with validated arguments for each call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

from ...shared.errors import ErrorType, Misconfigured, ToolError
from ..schemas.arguments import ArgumentSchema
from ..text.output import AnsiOutput, Display, FileDiff, TodoList
from ..tools import base
from ..tools.base import Effect, Kind
from ..tools.context import ToolContext, Touches
from .adapter import (
    AbortSignal,
    ToolAdapter,
    as_text,
    call_function,
    failure_result,
    get_field,
    report_as_invalid,
)

P = TypeVar("P", bound=Mapping[str, Any])
UpdateOutput = Callable[[Any], None]
"""Receives the output so far while the call runs."""


@dataclass(frozen=True, slots=True)
class ToolResultError:
    """The error of a result. ``type`` is a value of ``ErrorType``."""

    message: str
    type: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """``llm_content`` is for the model, ``return_display`` for people."""

    llm_content: Any
    return_display: Display = ""
    error: ToolResultError | None = None


class ToolInvocation(ABC, Generic[P]):
    """One call with its arguments."""

    def __init__(self, params: P) -> None:
        self.params = params

    @abstractmethod
    def get_description(self) -> str:
        """Returns a description of this call, one line for people."""

    def tool_locations(self) -> Sequence[str]:
        """Returns the paths that the call touches."""
        return ()

    async def should_confirm_execute(self, signal: AbortSignal) -> Any | Literal[False]:
        """Returns what a person must confirm first, or False for nothing."""
        return False

    @abstractmethod
    async def execute(
        self, signal: AbortSignal, update_output: UpdateOutput | None = None, shell_config: Any = None
    ) -> ToolResult: ...


class DeclarativeTool(ABC, Generic[P]):
    """The builder: the declaration of a tool."""

    def __init__(
        self,
        name: str,
        display_name: str,
        description: str,
        kind: Kind,
        parameter_schema: Mapping[str, Any],
        is_output_markdown: bool = True,
        can_update_output: bool = False,
    ) -> None:
        self.name = name
        self.display_name = display_name
        self.description = description
        self.kind = kind
        self.parameter_schema = parameter_schema
        self.is_output_markdown = is_output_markdown
        self.can_update_output = can_update_output

    @property
    def schema(self) -> dict[str, Any]:
        """Returns the function declaration."""
        return {
            "name": self.name,
            "description": self.description,
            "parametersJsonSchema": dict(self.parameter_schema),
        }

    @abstractmethod
    def build(self, params: P) -> ToolInvocation[P]:
        """Returns the call with these arguments. Raises ValueError with a message for invalid ones."""


class BaseDeclarativeTool(DeclarativeTool[P]):
    """A builder that validates the arguments against the schema."""

    def build(self, params: P) -> ToolInvocation[P]:
        if error := self.validate_tool_params(params):
            raise ValueError(error)
        return self.create_invocation(params)

    def validate_tool_params(self, params: P) -> str | None:
        """Returns the error message for invalid arguments, or None."""
        try:
            ArgumentSchema(self.name, self.parameter_schema, closed=False).check(params)
        except ToolError as error:
            return error.message
        return self.validate_tool_param_values(params)

    def validate_tool_param_values(self, params: P) -> str | None:
        """Returns the error of a check that a schema cannot express, or None."""
        return None

    @abstractmethod
    def create_invocation(self, params: P) -> ToolInvocation[P]: ...


@runtime_checkable
class ToolBuilder(Protocol):
    """An object with these members is a tool of this style, whatever its base class."""

    name: str
    display_name: str
    kind: Kind
    can_update_output: bool

    @property
    def schema(self) -> Mapping[str, Any]: ...
    def build(self, params: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class PreparedInvocation:
    """An invocation with its description and locations."""

    invocation: Any
    description: str
    locations: tuple[str, ...]


class BuilderAdapter(ToolAdapter):
    """Adapts a builder. The policy decides by its kind and locations whether a call needs approval."""

    def __init__(self, builder: ToolBuilder, effect: Effect | None = None) -> None:
        declaration = builder.schema
        parameters = declaration.get("parametersJsonSchema", declaration.get("parameters")) or {}
        if builder.kind not in set(Kind):
            raise Misconfigured(f"the tool {builder.name} is of kind {builder.kind!r}; there are {', '.join(Kind)}")
        super().__init__(builder.name, declaration.get("description", ""), parameters, Kind(builder.kind), effect)
        self.builder = builder

    def convert(self, arguments: dict[str, Any]) -> PreparedInvocation:
        converted = super().convert(arguments)
        with report_as_invalid(self.name):
            invocation = self.builder.build(converted)
            paths = [get_field(location, "path", location) for location in invocation.tool_locations()]
            return PreparedInvocation(invocation, str(invocation.get_description()), tuple(map(str, paths)))

    def title(self, params: PreparedInvocation) -> str:
        return params.description

    def touches(self, params: PreparedInvocation) -> Touches:
        return Touches(paths=params.locations)

    async def call(self, ctx: ToolContext, params: PreparedInvocation, signal: AbortSignal) -> base.ToolResult:
        if self.kind.looks and await call_function(params.invocation.should_confirm_execute, signal):
            # Calls of this kind are allowed without approval, so no person has confirmed this one.
            reason = f"{self.name} requires confirmation of this call, but {self.kind} calls run without approval"
            raise ToolError(ErrorType.PERMISSION_DENIED, f"denied: {reason}. Do without it.")
        update: UpdateOutput = lambda output: ctx.metadata(output=str(output))  # noqa: E731
        answer = await call_function(
            params.invocation.execute, signal, update if self.builder.can_update_output else None
        )
        content, display = as_text(get_field(answer, "llm_content")), _display(get_field(answer, "return_display"))
        if error := get_field(answer, "error"):
            return failure_result(get_field(error, "message"), content, get_field(error, "type"), display=display)
        return base.ToolResult(content, display=display)


def _display(value: Any) -> Display:
    return value if isinstance(value, str | FileDiff | AnsiOutput | TodoList) else as_text(value)
