"""Tools as the styles that are adapted write them: their base classes, as their own projects have them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, overload

from deputize.shared.errors import Misconfigured, ToolError
from deputize.worker.adapters.declarations import (
    AbortSignal,
    BaseToolResult,
    Declared,
    Execute,
    Init,
    ToolInfo,
    ToolInfoAsync,
    ToolPermission,
    UpdateOutput,
    json_schema,
)
from deputize.worker.schemas.arguments import ArgumentSchema
from deputize.worker.text.output import Display
from deputize.worker.tools.base import Kind

P = TypeVar("P", bound=Mapping[str, Any])


@dataclass(frozen=True, slots=True)
class ToolParameter:
    """One parameter. ``default`` is shown to the model, but not filled in."""

    name: str
    type: Literal["string", "integer", "number", "boolean", "array", "object"]
    description: str
    required: bool = True
    default: Any = None
    enum: Sequence[Any] | None = None


def _mistake(tool: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Returns the error message for arguments that do not match a schema, or None."""
    try:
        ArgumentSchema(tool, schema, closed=False).check(arguments)
    except ToolError as error:
        return error.message
    return None


# Plain objects


@dataclass(frozen=True, slots=True)
class PlainResult:
    """``success``, ``content`` and ``error``."""

    success: bool
    content: str = ""
    error: str | None = None


class PlainTool:
    """Name, description, parameters (JSON Schema) and ``async execute(**arguments)``; subclasses define all four."""

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def description(self) -> str:
        raise NotImplementedError

    @property
    def parameters(self) -> dict[str, Any]:
        raise NotImplementedError

    async def execute(self, *args: Any, **kwargs: Any) -> PlainResult:
        raise NotImplementedError

    def to_schema(self) -> dict[str, Any]:
        """Returns the tool's declaration for the Messages API."""
        return {"name": self.name, "description": self.description, "input_schema": self.parameters}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition(Declared):
    """A tool in settings and in the older form of this style: a definition and a function."""

    description: str
    parameters: Sequence[ToolParameter] = ()
    icon: str | None = None
    source: Literal["builtin", "mcp"] | None = None
    server_id: str | None = None
    server_name: str | None = None

    def executed_by(self, execute: Execute) -> ToolInfo:
        """Returns the tool in the current form."""
        shared: dict[str, Any] = self.shared_fields | ({"category": "mcp"} if self.source == "mcp" else {})
        return ToolInfo(**shared, description=self.description, parameters=self.parameters, execute=execute)


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


class BaseTool(ABC):
    """The base class. Further keyword arguments of the constructor are stored as ``config``."""

    def __init__(
        self, name: str, description: str, permission: ToolPermission = ToolPermission.AUTO, **config: Any
    ) -> None:
        self.name = name
        self.description = description
        self.permission = permission
        self.config = config

    @abstractmethod
    def get_parameters(self) -> list[ToolParameter]: ...

    @abstractmethod
    async def execute(self, **params: Any) -> BaseToolResult: ...

    def validate_params(self, params: Mapping[str, Any]) -> str | None:
        """Returns the error for missing, unknown or ill-typed arguments, or None."""
        return _mistake(self.name, {"additionalProperties": False, **json_schema(self.get_parameters())}, params)

    async def __call__(self, **params: Any) -> BaseToolResult:
        if error := self.validate_params(params):
            return BaseToolResult(False, error=error)
        return await self.execute(**params)


@dataclass(frozen=True, slots=True)
class ToolResultError:
    """The error of a result. ``type`` is a value of ``ErrorType``."""

    message: str
    type: str | None = None


@dataclass(frozen=True, slots=True)
class InvocationResult:
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
    ) -> InvocationResult: ...


@dataclass(eq=False)
class DeclarativeTool(ABC, Generic[P]):
    """The builder: the declaration of a tool."""

    name: str
    display_name: str
    description: str
    kind: Kind
    parameter_schema: Mapping[str, Any]
    is_output_markdown: bool = True
    can_update_output: bool = False

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
        return _mistake(self.name, self.parameter_schema, params) or self.validate_tool_param_values(params)

    def validate_tool_param_values(self, params: P) -> str | None:
        """Returns the error of a check that a schema cannot express, or None."""
        return None

    @abstractmethod
    def create_invocation(self, params: P) -> ToolInvocation[P]: ...
