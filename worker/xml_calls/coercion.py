"""Type coercion: converts the text of a value to its declared type, or infers a type where none is declared."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ..strict_json import loads

_COMBINATIONS = ("anyOf", "oneOf", "allOf")
_TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_INTEGER = re.compile(r"[+-]?\d++", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?", re.ASCII)
_LOOKS_INTEGER = re.compile(r"-?(?:0|[1-9]\d*+)", re.ASCII)
_LOOKS_FLOAT = re.compile(r"-?(?:0|[1-9]\d*+)\.\d++", re.ASCII)
_MAX_NUMBER_CHARACTERS = 400
_MAX_REFERENCES = 8
_NO_MATCH = object()
"""The text is not a value of the type."""


def declared_types(schema: Mapping[str, Any], name: str) -> frozenset[str]:
    """Returns the JSON types a schema allows for a parameter; empty where it declares none."""
    properties = schema.get("properties")
    part = properties.get(name) if isinstance(properties, Mapping) else None
    return frozenset(_types(part, schema, _MAX_REFERENCES))


def coerce(text: str, types: frozenset[str]) -> Any:
    """Returns the value of a text.

    A string stays verbatim, blanks included. A text that matches no declared type stays a string, so that the tool's
    validation reports it. Without a declared type, booleans, integers and decimals are inferred.
    """
    if not types:
        return _infer(text)
    if "string" in types:
        value = _json(text, types)
        return text if value is _NO_MATCH else value
    stripped = text.strip()
    for parse in (_null, _boolean, _number, _json):
        if (value := parse(stripped, types)) is not _NO_MATCH:
            return value
    return text


def _types(part: Any, root: Mapping[str, Any], references: int) -> set[str]:
    if not isinstance(part, Mapping) or not references:
        return set()
    found: set[str] = set()
    if isinstance(reference := part.get("$ref"), str):
        found |= _types(_resolve(reference, root), root, references - 1)
    type_ = part.get("type")
    found |= {name for name in (type_ if isinstance(type_, list) else [type_]) if isinstance(name, str)}
    for key in _COMBINATIONS:
        for entry in part.get(key) or ():
            found |= _types(entry, root, references - 1)
    if not found:
        examples = [part["const"]] if "const" in part else part.get("enum") or ()
        found = {_TYPE_NAMES.get(type(example), "null") for example in examples}
    return found


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    """Returns the schema that ``#/$defs/Name`` references, or None."""
    part: Any = root
    for key in reference.removeprefix("#/").split("/"):
        part = part.get(key) if isinstance(part, Mapping) else None
    return part


def _null(text: str, types: frozenset[str]) -> Any:
    return None if "null" in types and text in ("", "null") else _NO_MATCH


def _boolean(text: str, types: frozenset[str]) -> Any:
    return {"true": True, "false": False}.get(text.lower(), _NO_MATCH) if "boolean" in types else _NO_MATCH


def _number(text: str, types: frozenset[str]) -> Any:
    if len(text) > _MAX_NUMBER_CHARACTERS or not types & {"integer", "number"}:
        return _NO_MATCH
    if _INTEGER.fullmatch(text):
        return int(text)
    number = float(text) if "number" in types and _NUMBER.fullmatch(text) else math.inf
    return number if math.isfinite(number) else _NO_MATCH


def _json(text: str, types: frozenset[str]) -> Any:
    if not types & {"array", "object"}:
        return _NO_MATCH
    try:
        value = loads(text)
    except ValueError:
        return _NO_MATCH
    fits = ("array" in types and isinstance(value, list)) or ("object" in types and isinstance(value, dict))
    return value if fits else _NO_MATCH


def _infer(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if len(text) > _MAX_NUMBER_CHARACTERS:
        return text
    if _LOOKS_INTEGER.fullmatch(text):
        return int(text)
    if _LOOKS_FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text
