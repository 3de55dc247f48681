"""What the adapters read of tools of other styles, and give to them.

A tool of another style is recognized by its members, and a result may be any mapping or object with the fields of its
style.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal, Protocol, TypedDict, cast

from pydantic import BaseModel

from ..tools.base import InitContext

Parameters = Mapping[str, Any] | type[BaseModel] | Iterable[Any]
"""A JSON Schema, a pydantic model, or a list of objects with name, type, description, required, default and enum."""


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
class Declared:
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
        return {each.name: getattr(self, each.name) for each in fields(Declared)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInfo(Declared):
    """A static tool. The result of ``execute`` has ``title``, ``output`` and ``metadata``."""

    description: str
    parameters: Parameters
    execute: Execute
    format_validation_error: Callable[[Exception], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInfoAsync(Declared):
    """A tool whose description or parameters are determined at run time. ``init`` is called once, and again when the
    skills differ from those of the last time, or after it failed."""

    init: Init


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


class CallableTool(Protocol):
    """A tool that is called by itself, without a run."""

    name: str

    async def __call__(self, **params: Any) -> BaseToolResult: ...


# Builders and their invocations

UpdateOutput = Callable[[Any], None]
"""Receives the output so far while the call runs."""
