"""Builders: one object that declares the tool, and for each call an invocation that holds the checked arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

from shared.errors import ErrorType, Misconfigured, ToolError
from worker.adapters.foreign import AbortSignal, Adapted, answered, as_text, called, failed, part
from worker.display import AnsiOutput, Display, FileDiff, TodoList
from worker.schemas.declared import check, valid_schema
from worker.tools import base
from worker.tools.base import Effect, Kind
from worker.tools.context import ToolContext, Touches

P = TypeVar("P", bound=Mapping[str, Any])
UpdateOutput = Callable[[Any], None]
"""Hears the output so far while the call runs."""


@dataclass(frozen=True, slots=True)
class ToolResultError:
    """``type`` is one of ``ErrorType``."""

    message: str
    type: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """``llm_content`` goes into the history, ``return_display`` to people."""

    llm_content: Any
    return_display: Display = ""
    error: ToolResultError | None = None


class ToolInvocation(ABC, Generic[P]):
    """One call."""

    def __init__(self, params: P) -> None:
        self.params = params

    @abstractmethod
    def get_description(self) -> str:
        """One line for people: what this call does."""

    def tool_locations(self) -> Sequence[str]:
        """The paths it touches."""
        return ()

    async def should_confirm_execute(self, signal: AbortSignal) -> Any | Literal[False]:
        """What a person should be shown before, or False where nobody need be asked."""
        return False

    @abstractmethod
    async def execute(
        self, signal: AbortSignal, update_output: UpdateOutput | None = None, shell_config: Any = None
    ) -> ToolResult: ...


class DeclarativeTool(ABC, Generic[P]):
    """The builder: what the tool is, apart from any call of it."""

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
        """The function declaration."""
        return {
            "name": self.name,
            "description": self.description,
            "parametersJsonSchema": dict(self.parameter_schema),
        }

    @abstractmethod
    def build(self, params: P) -> ToolInvocation[P]:
        """The call with these arguments. Raises ``ValueError`` that says what is wrong with them."""


class BaseDeclarativeTool(DeclarativeTool[P]):
    """A builder whose arguments are checked against the schema before there is an invocation."""

    def build(self, params: P) -> ToolInvocation[P]:
        if error := self.validate_tool_params(params):
            raise ValueError(error)
        return self.create_invocation(params)

    def validate_tool_params(self, params: P) -> str | None:
        """What is wrong with the arguments, or None."""
        try:
            check(self.name, valid_schema(self.name, self.parameter_schema), params)
        except ToolError as error:
            return error.message
        return self.validate_tool_param_values(params)

    def validate_tool_param_values(self, params: P) -> str | None:
        """For what a schema cannot say."""
        return None

    @abstractmethod
    def create_invocation(self, params: P) -> ToolInvocation[P]: ...


@runtime_checkable
class ToolBuilder(Protocol):
    """Whatever has these is a tool of this design, whoever's base class it has."""

    name: str
    display_name: str
    kind: Kind
    can_update_output: bool

    @property
    def schema(self) -> Mapping[str, Any]: ...
    def build(self, params: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Built:
    """An invocation, and what it says of itself before it runs."""

    invocation: Any
    description: str
    locations: tuple[str, ...]


class AdaptedBuilder(Adapted):
    """The loop decides by kind and locations whether somebody is asked."""

    def __init__(self, builder: ToolBuilder, effect: Effect | None = None) -> None:
        declared = builder.schema
        parameters = declared.get("parametersJsonSchema", declared.get("parameters")) or {}
        if builder.kind not in set(Kind):
            raise Misconfigured(f"the tool {builder.name} is of kind {builder.kind!r}; there are {', '.join(Kind)}")
        super().__init__(builder.name, declared.get("description", ""), parameters, Kind(builder.kind), effect)
        self.builder = builder

    def converted(self, arguments: dict[str, Any]) -> Built:
        checked = super().converted(arguments)
        with answered(self.name):
            invocation = self.builder.build(checked)
            places = [part(place, "path", place) for place in invocation.tool_locations()]
            return Built(invocation, str(invocation.get_description()), tuple(map(str, places)))

    def title(self, params: Built) -> str:
        return params.description

    def touches(self, params: Built) -> Touches:
        return Touches(paths=params.locations)

    async def call(self, ctx: ToolContext, params: Built, signal: AbortSignal) -> base.ToolResult:
        if self.kind.looks and await called(params.invocation.should_confirm_execute, signal):
            # its kind says that nobody need be asked, so nobody was
            said = f"{self.name} wants a person's confirmation for this call, but looks as if it needed none"
            raise ToolError(ErrorType.PERMISSION_DENIED, f"denied: {said}. Do without it.")
        news: UpdateOutput = lambda output: ctx.metadata(output=str(output))  # noqa: E731
        answer = await called(params.invocation.execute, signal, news if self.builder.can_update_output else None)
        content, display = as_text(part(answer, "llm_content")), _display(part(answer, "return_display"))
        if error := part(answer, "error"):
            return failed(part(error, "message"), content, part(error, "type"), display=display)
        return base.ToolResult(content, display=display)


def _display(shown: Any) -> Display:
    return shown if isinstance(shown, str | FileDiff | AnsiOutput | TodoList) else as_text(shown)
