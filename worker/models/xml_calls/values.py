"""From a value's text to its type: the declared one, or by its looks where none is declared."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from worker.strict_json import loads

_ENTRIES = ("anyOf", "oneOf", "allOf")
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_INTEGER = re.compile(r"[+-]?\d++", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?", re.ASCII)
_LOOKS_INTEGER = re.compile(r"-?(?:0|[1-9]\d*+)", re.ASCII)
_LOOKS_FLOAT = re.compile(r"-?(?:0|[1-9]\d*+)\.\d++", re.ASCII)
_LONGEST_NUMBER = 400
_MAX_REFERENCES = 8
_UNFIT = object()
"""Says that a text is no value of the type asked for."""


def declared_types(schema: Mapping[str, Any], name: str) -> frozenset[str]:
    """The JSON types a tool's schema allows a parameter; empty where it does not say."""
    properties = schema.get("properties")
    part = properties.get(name) if isinstance(properties, Mapping) else None
    return frozenset(_types(part, schema, _MAX_REFERENCES))


def convert(text: str, types: frozenset[str]) -> Any:
    """The value that the text stands for.

    A string stays verbatim, blanks included. What fits none of the declared types stays a text, for the tool to say
    what is wrong with it. Without a declared type: true and false, 123 and 3.14 are what they look like.
    """
    if not types:
        return _by_looks(text)
    if "string" in types:
        found = _structure(text, types)
        return text if found is _UNFIT else found
    bare = text.strip()
    for read in (_null, _boolean, _number, _structure):
        if (found := read(bare, types)) is not _UNFIT:
            return found
    return text


def _types(part: Any, root: Mapping[str, Any], references: int) -> set[str]:
    if not isinstance(part, Mapping) or not references:
        return set()
    found: set[str] = set()
    if isinstance(reference := part.get("$ref"), str):
        found |= _types(_referred(reference, root), root, references - 1)
    said = part.get("type")
    found |= {kind for kind in (said if isinstance(said, list) else [said]) if isinstance(kind, str)}
    for key in _ENTRIES:
        for entry in part.get(key) or ():
            found |= _types(entry, root, references - 1)
    if not found:
        examples = [part["const"]] if "const" in part else part.get("enum") or ()
        found = {_NAMES.get(type(example), "null") for example in examples}
    return found


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    """What ``#/$defs/Name`` names."""
    place: Any = root
    for step in reference.removeprefix("#/").split("/"):
        place = place.get(step) if isinstance(place, Mapping) else None
    return place


def _null(bare: str, types: frozenset[str]) -> Any:
    return None if "null" in types and bare in ("", "null") else _UNFIT


def _boolean(bare: str, types: frozenset[str]) -> Any:
    return {"true": True, "false": False}.get(bare.lower(), _UNFIT) if "boolean" in types else _UNFIT


def _number(bare: str, types: frozenset[str]) -> Any:
    if len(bare) > _LONGEST_NUMBER or not types & {"integer", "number"}:
        return _UNFIT
    if _INTEGER.fullmatch(bare):
        return int(bare)
    number = float(bare) if "number" in types and _NUMBER.fullmatch(bare) else math.inf
    return number if math.isfinite(number) else _UNFIT


def _structure(text: str, types: frozenset[str]) -> Any:
    if not types & {"array", "object"}:
        return _UNFIT
    try:
        value = loads(text)
    except ValueError:
        return _UNFIT
    fits = ("array" in types and isinstance(value, list)) or ("object" in types and isinstance(value, dict))
    return value if fits else _UNFIT


def _by_looks(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if len(text) > _LONGEST_NUMBER:
        return text
    if _LOOKS_INTEGER.fullmatch(text):
        return int(text)
    if _LOOKS_FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text
