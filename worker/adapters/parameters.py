"""How the designs declare parameters: JSON Schema, a pydantic model or a list; all become JSON Schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

from pydantic import BaseModel

ParameterType = Literal["string", "integer", "number", "boolean", "array", "object"]


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
