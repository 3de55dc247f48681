"""The JSON Schemas of the tools, short: a client's model reads all of them before its first word, and pays for each.

They name every argument with its type and its purpose. Bounds are left out: the service checks them, and its errors
name each mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from ...shared.json_schema import plain_schema
from ...shared.request import DelegationRequest
from ..short_forms import add_short_forms
from .outcome import Outcome

_KEYWORDS = ("type", "enum", "const", "required", "default", "items")
_CHOICES = ("anyOf", "oneOf")
_NULL = {"type": "null"}
_DESCRIBED = 1
"""How many objects deep fields are described."""
DESCRIBED_BY: Mapping[type[BaseModel], str] = {DelegationRequest: "delegate", Outcome: "delegate_result"}
"""Models that several tools have, and the one tool whose schema describes their fields for all."""
_AS_DELEGATE = {
    "type": "object",
    "properties": {
        "task": {
            "type": "string",
            "description": "What is to be done. All other arguments of `delegate` may stand beside it.",
        }
    },
    "required": ["task"],
}
_AS_RESULT = ("id", "status", "success", "mark", "summary")


def input_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Returns the whole schema of a tool's arguments, without the fields that the service refuses today."""
    made = model.model_json_schema(by_alias=True)
    if issubclass(model, DelegationRequest):
        add_short_forms(made)
    return plain_schema(made)


def short_input(tool: str, model: type[BaseModel]) -> dict[str, Any]:
    """Returns the schema of a tool's arguments."""
    if tool == DESCRIBED_BY[DelegationRequest]:
        return _short(input_schema(model))
    if model is DelegationRequest:
        return _AS_DELEGATE
    whole = model.model_json_schema(by_alias=True)
    if (name := DelegationRequest.__name__) in whole.get("$defs", {}):
        whole["$defs"][name] = _AS_DELEGATE
    return _short(plain_schema(whole))


def short_output(tool: str, model: type[BaseModel]) -> dict[str, Any]:
    """Returns the names and types of a result's fields."""
    fields = plain_schema(model.model_json_schema(by_alias=True, mode="serialization"))["properties"]
    shown = fields if DESCRIBED_BY.get(model, tool) == tool else _AS_RESULT
    return {"type": "object", "properties": {name: _types(fields[name]) for name in shown}}


def _types(part: Mapping[str, Any]) -> dict[str, Any]:
    """Returns which types a value may have; any where a choice names none."""
    choices = part.get("anyOf", [part])
    kinds = [*dict.fromkeys(each.get("type") for each in choices)]
    return {} if None in kinds else {"type": kinds[0] if len(kinds) == 1 else kinds}


def _kinds(choice: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the choices of a choice that is one itself."""
    return choice["oneOf"] if choice.keys() <= {"oneOf", "discriminator"} else [choice]


def _short(part: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Returns a part of a schema; an argument may be left out instead of being null."""
    for key in _CHOICES:
        choices = [each for choice in part.get(key, ()) for each in _kinds(choice) if each != _NULL]
        if len(choices) == 1:
            return _short({**choices[0], **{name: each for name, each in part.items() if name != key}}, depth)
        if choices:
            part = {**part, key: [_short(each, depth) for each in choices]}
    found = {key: part[key] for key in (*_KEYWORDS, *_CHOICES) if part.get(key)}
    if "const" in found:
        found.pop("default", None)  # the same
    if depth <= _DESCRIBED and "description" in part:
        found["description"] = _first_sentence(part["description"])
    if "items" in found:
        found["items"] = _short(found["items"], depth + 1)
    if "properties" in part:
        found["properties"] = {name: _short(each, depth + 1) for name, each in part["properties"].items()}
    return found


def _first_sentence(text: str) -> str:
    first, end, _ = " ".join(text.split()).partition(". ")
    return first + end.strip()
