"""The classes that tools of the other styles are written with.

Only ``ToolInfo``, ``ToolInfoAsync`` and ``TableEntry`` are needed: a tool of another style is recognized by its
members, and a result may be any mapping or object with the fields of its style.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Generic, Literal, TypedDict, TypeVar, cast, overload

from pydantic import BaseModel

from ...shared.errors import Misconfigured, ToolError
from ..schemas.arguments import ArgumentSchema
from ..text.output import Display
from ..tools.base import InitContext, Kind

P = TypeVar("P", bound=Mapping[str, Any])
Parameters = Mapping[str, Any] | type[BaseModel] | Iterable[Any]
"""A JSON Schema, a pydantic model, or a list of objects such as ``ToolParameter``."""


@dataclass(frozen=True, slots=True)
class ToolParameter:
    """One parameter. ``default`` is shown to the model, but not filled in."""

    name: str
    type: Literal["string", "integer", "number", "boolean", "array", "object"]
    description: str
    required: bool = True
    default: Any = None
    enum: Sequence[Any] | None = None


def json_schema(parameters: Parameters) -> dict[str, Any]:
    """Returns the JSON Schema of parameters declared in any form."""
    if isinstance(parameters, type):
        return parameters.model_json_schema()
    if isinstance(parameters, Mapping):
        return dict(cast("Mapping[str, Any]", parameters))
    properties: dict[str, Any] = {}
    required: list[str] = []
    for item in parameters:
        optional = {"enum": getattr(item, "enum", None)}
        if item.required:
            required.append(item.name)
        else:
            optional["default"] = getattr(item, "default", None)
        given = {key: value for key, value in optional.items() if value is not None}
        properties[item.name] = {"type": item.type, "description": item.description, **given}
    return {"type": "object", "properties": properties, "required": required}


class AbortSignal(asyncio.Event):
    """Signals to a call, in any thread, that it is cancelled. ``wait`` returns then."""

    @property
    def aborted(self) -> bool:
        return self.is_set()

    def abort(self) -> None:
        self.set()


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


# Tables of functions


class TableEntry(TypedDict):
    """One entry of a table name → entry. ``execute`` receives an instance if ``parameters`` is a pydantic model, and a
    mapping if it is a JSON Schema."""

    description: str
    parameters: Parameters
    execute: Callable[[Any], Awaitable[str] | str]


# Tool.define


@dataclass(frozen=True, slots=True)
class DefinedContext:
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


Execute = Callable[[Any, DefinedContext], Awaitable[Any]]
Init = Callable[[InitContext], Awaitable[Mapping[str, Any]]]
"""Returns description, parameters and execute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    """What all tools of this style declare. ``id`` is the name for the model, ``name`` the one for people.

    A tool that is not ``enabled`` is not offered; calls of one with ``auto_execute`` need no approval.
    """

    id: str
    name: str
    category: Literal["builtin", "custom", "mcp"] = "custom"
    enabled: bool = True
    auto_execute: bool = False

    @property
    def shared_fields(self) -> dict[str, Any]:
        """Returns the fields of this class, for another declaration of the same tool."""
        return {each.name: getattr(self, each.name) for each in fields(_Declared)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInfo(_Declared):
    """A static tool. The result of ``execute`` has ``title``, ``output`` and ``metadata``."""

    description: str
    parameters: Parameters
    execute: Execute
    format_validation_error: Callable[[Exception], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInfoAsync(_Declared):
    """A tool whose description or parameters are determined at run time. ``init`` is called once, and again when the
    skills differ from those of the last time, or after it failed."""

    init: Init


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition(_Declared):
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


# BaseTool


class ToolPermission(StrEnum):
    """Whether a call runs without approval."""

    AUTO = "auto"
    CONFIRM = "confirm"


@dataclass(frozen=True, slots=True)
class BaseToolResult:
    """``success``, ``data``, ``error`` and ``metadata``."""

    success: bool
    data: Any = None
    error: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


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


# Builders and their invocations

UpdateOutput = Callable[[Any], None]
"""Receives the output so far while the call runs."""


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
