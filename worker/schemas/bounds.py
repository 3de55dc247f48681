"""Bounds of foreign JSON Schemas: the library that applies them cannot be interrupted and holds up the event loop.

A schema is checked when it is declared, and the work of each validation is counted before it begins, because some
schemas apply millions of subschemas to one small value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any
from urllib.parse import unquote

MAX_BYTES = 128 * 1024
MAX_DEPTH = 100
"""Levels of JSON; a nested object takes two."""
MAX_PARTS = 10_000
"""Objects, lists and values of one schema."""
MAX_FAN_OUT = 20_000
"""Subschemas applied to one value, added up over all parts of a schema: as many may be compiled.

``allOf`` of two references, nested 26 times, is 67 million.
"""
MAX_PATTERNS = 200
MAX_STEPS = 1_000_000
"""The work of one validation. A step takes 50 nanoseconds; those of the worst schemas ten times as long."""
_MAX_PAIRS = 50_000
"""Pairs of subschema and value that are looked at to count the steps."""
_BYTES_PER_STEP = 16
"""Of the values that one is compared with."""
_STEPS_PER_CHARACTER = 4
"""Of a name: the patterns of names may be larger."""
CHOICES = ("allOf", "anyOf", "oneOf")
"""Choices between whole sets of arguments."""
_BRANCHES = ("not", "if", "then", "else")
_FURTHER = ("additionalProperties", "unevaluatedProperties")
_ITEMS = ("items", "contains", "unevaluatedItems")
_MAPS = ("$defs", "definitions", "patternProperties", "properties")
_COMPARED = ("const", "enum", "required")


class InvalidSchema(ValueError):
    """The schema is invalid, or could take too long."""


class TooManySteps(ValueError):
    """The validation of this value could take too long."""


class Bounds:
    """A schema with its references. Raises ``InvalidSchema`` if it is too large or refers to what is outside of it."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        _check_size(schema)
        self._root = schema
        self.patterns: set[str] = set()
        """The regular expressions of values in it."""
        self.name_patterns: set[str] = set()
        """Those of the names of properties."""
        self.has_choices = False
        """Whether it has ``anyOf`` or ``oneOf``."""
        self._same: dict[int, list[Any]] = {}
        """By the identity of a part: the subschemas that it applies to its own value."""
        self._fans: dict[int, int | None] = {}
        self._own: dict[int, int] = {}
        waiting: list[Any] = [schema]
        while waiting:
            part = waiting.pop()
            if isinstance(part, dict) and id(part) not in self._same:
                waiting += self._index(part)
        if len(self.patterns) + len(self.name_patterns) > MAX_PATTERNS:
            raise InvalidSchema(f"they have more than {MAX_PATTERNS} patterns; leave some out")
        self._check_fan_out()

    def steps(self, value: Any) -> int:
        """Returns how much work it is to validate the value. Raises ``TooManySteps``."""
        try:
            steps = self._steps(self._root, value, {})
        except RecursionError:
            raise TooManySteps from None
        if steps > MAX_STEPS:
            raise TooManySteps
        return steps

    def _index(self, part: dict[str, Any]) -> list[Any]:
        """Notes what the part applies. Returns all its subschemas."""
        if "$dynamicRef" in part:
            raise InvalidSchema("$dynamicRef is not supported; use $ref")
        if "$id" in part and part is not self._root:
            raise InvalidSchema("an inner $id is not supported; remove it, and refer to the part as #/$defs/…")
        self.name_patterns |= _object(part, "patternProperties").keys()
        if isinstance(pattern := part.get("pattern"), str):
            self.patterns.add(pattern)
        self.has_choices |= "anyOf" in part or "oneOf" in part
        same = [*_listed(part, *CHOICES), *(part[key] for key in _BRANCHES if key in part)]
        same += [*_object(part, "dependentSchemas").values(), *self._target(part)]
        self._same[id(part)] = same
        compared = [part[key] for key in _COMPARED if key in part]
        self._own[id(part)] = 1 + len(json.dumps(compared)) // _BYTES_PER_STEP
        inner = [part[key] for key in (*_FURTHER, *_ITEMS, "propertyNames") if key in part]
        inner += chain.from_iterable(_object(part, key).values() for key in _MAPS)
        return [*same, *inner, *_listed(part, "prefixItems")]

    def _target(self, part: Mapping[str, Any]) -> list[Any]:
        where = part.get("$ref")
        if not isinstance(where, str):
            return []
        if where != "#" and not where.startswith("#/"):
            raise InvalidSchema(f"nothing is fetched for the reference {where[:200]!r}; use one that begins with #/")
        found: Any = self._root
        try:
            for key in unquote(where).split("/")[1:]:
                key = key.replace("~1", "/").replace("~0", "~")
                found = found[int(key)] if isinstance(found, list) else found[key]
        except (KeyError, IndexError, ValueError, TypeError):
            raise InvalidSchema(f"the reference {where[:200]!r} leads to nothing in them; add its target") from None
        return [found]

    def _check_fan_out(self) -> None:
        try:
            total = sum(self._fan_out(part, self._same[part]) for part in self._same)
        except RecursionError:
            raise InvalidSchema("too many references follow each other; refer to the last one") from None
        if total > MAX_FAN_OUT:
            raise InvalidSchema(
                f"one value would be checked against {total:,} subschemas; use fewer in allOf and anyOf"
            )

    def _fan_out(self, part: int, same: Sequence[Any]) -> int:
        """Returns the number of subschemas applied to a value that this part is applied to."""
        if part not in self._fans:
            self._fans[part] = None
            inner = [each for each in same if isinstance(each, dict)]
            self._fans[part] = 1 + sum(self._fan_out(id(each), self._same[id(each)]) for each in inner)
        known = self._fans[part]
        if known is None:
            raise InvalidSchema("a reference leads back to itself without end; refer to something inside of the value")
        return known

    def _steps(self, part: Any, value: Any, known: dict[tuple[int, int], int]) -> int:
        """Returns the steps of this part for this value. A pair is counted once, and added as often as it occurs."""
        if not isinstance(part, dict):
            return 1
        pair = id(part), id(value)
        if pair not in known:
            if len(known) >= _MAX_PAIRS:
                raise TooManySteps
            steps = self._own[id(part)] + _matched(part, value)
            for each in self._same[id(part)]:
                steps += self._steps(each, value, known)
            for inner, each in _inner(part, value):
                steps += self._steps(inner, each, known)
            known[pair] = steps
        return known[pair]


def _matched(part: Mapping[str, Any], value: Any) -> int:
    """Returns the steps of the part's patterns: one for each character, and some for each one of a name."""
    if isinstance(value, dict) and "patternProperties" in part:
        return _STEPS_PER_CHARACTER * len(part["patternProperties"]) * (len(value) + sum(map(len, value)))
    return len(value) if isinstance(value, str) and "pattern" in part else 0


def _inner(part: Mapping[str, Any], value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the subschemas that may be applied inside of the value, each with what it is applied to."""
    if isinstance(value, dict):
        named = part.get("properties", {})
        others = [part[key] for key in _FURTHER if key in part] + [*part.get("patternProperties", {}).values()]
        for name, each in value.items():
            if name in named:
                yield named[name], each
            if "propertyNames" in part:
                yield part["propertyNames"], name
            yield from ((other, each) for other in others)
    elif isinstance(value, list):
        yield from zip(part.get("prefixItems", []), value, strict=False)
        for other in [part[key] for key in _ITEMS if key in part]:
            yield from ((other, each) for each in value)


def _object(part: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = part.get(key)
    return found if isinstance(found, dict) else {}


def _listed(part: Mapping[str, Any], *keys: str) -> Iterator[Any]:
    return chain.from_iterable(part[key] for key in keys if isinstance(part.get(key), list))


def _check_size(schema: Any) -> None:
    """Raises ``InvalidSchema`` if it is longer, deeper or has more parts than any real one."""
    parts, level = 0, [schema]
    for _ in range(MAX_DEPTH + 1):
        parts += len(level)
        if parts > MAX_PARTS:
            raise InvalidSchema(f"they have more than {MAX_PARTS} parts")
        inner = [part for part in level if isinstance(part, dict | list)]
        if not inner:
            break
        level = list(chain.from_iterable(part.values() if isinstance(part, dict) else part for part in inner))
    else:
        raise InvalidSchema(f"they are nested more than {MAX_DEPTH} deep")
    try:
        size = len(json.dumps(schema, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise InvalidSchema("they contain half of a character, a lone surrogate; remove it") from None
    if size > MAX_BYTES:
        raise InvalidSchema(f"they are longer than {MAX_BYTES} bytes of JSON")
