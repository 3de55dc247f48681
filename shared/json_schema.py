"""JSON Schemas from outside: their compilation, and bounds, as the library that applies them cannot be interrupted.

A schema is checked when it is declared, and the work of each validation is counted before it begins, because some
schemas apply millions of subschemas to one small value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import regex

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator, ValidationError

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
_MAPS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_COMPARED = ("const", "enum", "required")
_LINEAR_BYTES = 16 * 1024
_LINEAR_NAME_BYTES = 128 * 1024
"""The size of a compiled pattern of values or names for the linear engine: its time per character grows with it."""
_MAX_SLOW_PATTERN = 1000
"""Characters of a pattern for the slower engine."""
_NOT_LINEAR = regex.compile(r"\(\?<?[=!]|(?<!\\)(?:\\\\)*\\[1-9]|\(\?P=")
"""What only an engine supports that takes more than linear time."""
_MAX_DETAIL = 500
"""Characters of one mistake; the middle of a longer one is left out, as it ends with what was expected."""
SLOW_PATTERN = "slowPattern"
"""The keyword in place of ``pattern`` where the linear engine refuses a pattern: for look-around, or its size."""


def compiled(
    text: str, slow_pattern: Callable[[Any, str, Any], Any] | None = None
) -> tuple[Bounds, Draft202012Validator]:
    """Returns what validates against a schema, and its bounds.

    ``slow_pattern`` makes the validators of patterns that the linear engine refuses. Raises ``InvalidSchema``.
    """
    from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

    schema = json.loads(text)
    bounds = Bounds(schema)
    for pattern in bounds.name_patterns:
        if not _is_linear(pattern, _LINEAR_NAME_BYTES):
            place = bounds.place(pattern, "patternProperties")
            raise InvalidSchema(f"in patternProperties, {_why_refused(pattern)}", place)
    if slow := {each for each in bounds.patterns if not _is_linear(each, _LINEAR_BYTES)}:
        for pattern in slow:
            try:
                slow_regex(pattern)
            except InvalidSchema as error:
                raise InvalidSchema(str(error), bounds.place(pattern, "pattern")) from None
        schema = json.loads(text, object_hook=partial(_with_slow_patterns, slow))
    try:
        return bounds, Draft202012Validator(
            schema,
            pattern_options=RegexOptions(size_limit=_LINEAR_NAME_BYTES),
            validate_formats=False,
            offline=True,
            keywords={SLOW_PATTERN: slow_pattern} if slow_pattern else {},  # pyright: ignore[reportArgumentType]
        )
    except ValidationError as error:
        path = "/".join(map(str, error.instance_path))
        raise InvalidSchema(f"{path or 'the schema'}: {detail_of(error)}", pointer_to(error.instance_path)) from None


def _is_linear(pattern: str, size: int) -> bool:
    """Returns whether the linear engine supports the pattern, with this size at most."""
    from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

    try:
        Draft202012Validator({"pattern": pattern}, pattern_options=RegexOptions(size_limit=size))
    except ValidationError:
        return False
    return True


def _why_refused(pattern: str) -> str:
    """Returns why a pattern of names cannot be used, which the linear engine refuses."""
    try:
        slow_regex(pattern)
    except InvalidSchema as error:
        return str(error)
    if _NOT_LINEAR.search(pattern):
        return f"the pattern {pattern[:200]!r} uses look-around or a reference to a group; names cannot have these"
    return f"the pattern {pattern[:200]!r} is too large; simplify it"


def slow_regex(pattern: str) -> regex.Pattern[str]:
    """Raises ``InvalidSchema`` for a pattern that is invalid, or so long that compiling it takes long."""
    if len(pattern) > _MAX_SLOW_PATTERN:
        raise InvalidSchema(f"the pattern {pattern[:200]!r}… is too large; simplify it")
    try:
        return regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise InvalidSchema(f"the pattern {pattern[:200]!r} is not a valid regular expression: {error}") from None


def _with_slow_patterns(slow: set[str], part: dict[str, Any]) -> dict[str, Any]:
    pattern = part.get("pattern")
    if isinstance(pattern, str) and pattern in slow:
        return {SLOW_PATTERN if key == "pattern" else key: value for key, value in part.items()}
    return part


def detail_of(error: ValidationError) -> str:
    """Returns the message of a mistake, shortened, with the choices and alternatives that the library leaves out."""
    detail, half = _detail(error), _MAX_DETAIL // 2 - 1
    return detail if len(detail) <= _MAX_DETAIL else f"{detail[:half]} … {detail[-half:]}"


def _detail(error: ValidationError) -> str:
    if options := getattr(error.kind, "options", None):
        value, *choices = (json.dumps(each, ensure_ascii=False) for each in [error.instance, *options])
        return f"{value} is not one of {', '.join(choices)}"
    if alternatives := [each[0] for each in getattr(error.kind, "context", []) if each]:
        return f"{error.message}: {', or '.join(dict.fromkeys(map(_detail, alternatives)))}"
    return error.message


def pointer_to(path: Iterable[object]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


class InvalidSchema(ValueError):
    """The schema is invalid, or could take too long. ``pointer`` leads to the place in it."""

    def __init__(self, message: str, pointer: str = "") -> None:
        super().__init__(message)
        self.pointer = pointer


class TooManySteps(ValueError):
    """The validation of this value could take too long."""


class Bounds:
    """A schema with its references. Raises ``InvalidSchema`` if it is too large or refers to what is outside of it."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        _check_size(schema)
        self._root = schema
        self.parts: list[dict[str, Any]] = []
        """All subschemas in it, itself included."""
        self.patterns: set[str] = set()
        """The regular expressions of values in it."""
        self.name_patterns: set[str] = set()
        """Those of the names of properties."""
        self.has_choices = False
        """Whether it has ``anyOf`` or ``oneOf``."""
        self._same: dict[int, list[Any]] = {}
        """By the identity of a part: the subschemas that it applies to its own value."""
        self._fans: dict[int, int | None] = {}
        """The number of subschemas applied to a value that a part is applied to; None while it is counted."""
        self._own: dict[int, int] = {}
        """The steps of a part without its subschemas."""
        waiting: list[Any] = [schema]
        while waiting:
            part = waiting.pop()
            if isinstance(part, dict) and id(part) not in self._same:
                waiting += self._index(part)
        if len(self.patterns) + len(self.name_patterns) > MAX_PATTERNS:
            raise InvalidSchema(f"they have more than {MAX_PATTERNS} patterns; leave some out")
        try:
            total = sum(self._fan_out(part) for part in self._same)
        except RecursionError:
            raise InvalidSchema("too many references follow each other; refer to the last one") from None
        if total > MAX_FAN_OUT:
            raise InvalidSchema(
                f"one value would be checked against {total:,} subschemas; use fewer in allOf and anyOf"
            )

    def steps(self, value: Any) -> int:
        """Returns how much work it is to validate the value. Raises ``TooManySteps``."""
        try:
            steps = self._steps(self._root, value, {})
        except RecursionError:
            raise TooManySteps from None
        if steps > MAX_STEPS:
            raise TooManySteps
        return steps

    def place(self, pattern: str, key: str) -> str:
        """Returns the pointer to the first pattern like this one below ``pattern`` or ``patternProperties``."""
        below = [pattern] if key == "patternProperties" else []
        found = (part for part in self.parts if isinstance(part.get(key), dict if below else str))
        return self.pointer(
            next(part for part in found if (pattern in part[key] if below else part[key] == pattern)), key, *below
        )

    def pointer(self, part: Any, *further: str) -> str:
        """Returns the pointer to a part, by its identity, and to what is below it."""
        waiting: list[tuple[tuple[object, ...], Any]] = [((), self._root)]
        while True:
            path, value = waiting.pop()
            if value is part:
                return pointer_to((*path, *further))
            inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
            waiting += [((*path, key), each) for key, each in inner]

    def _index(self, part: dict[str, Any]) -> list[Any]:
        """Notes what the part applies. Returns all its subschemas."""
        self.parts.append(part)
        if "$dynamicRef" in part:
            raise InvalidSchema("$dynamicRef is not supported; use $ref", self.pointer(part, "$dynamicRef"))
        if "$id" in part and part is not self._root:
            why = "an inner $id is not supported; remove it, and refer to the part as #/$defs/…"
            raise InvalidSchema(why, self.pointer(part, "$id"))
        maps = {key: part[key] for key in _MAPS if isinstance(part.get(key), dict)}
        self.name_patterns |= maps.get("patternProperties", {}).keys()
        if isinstance(pattern := part.get("pattern"), str):
            self.patterns.add(pattern)
        self.has_choices |= "anyOf" in part or "oneOf" in part
        same = [*_listed(part, *CHOICES), *(part[key] for key in _BRANCHES if key in part)]
        same += [*maps.pop("dependentSchemas", {}).values(), *self._target(part)]
        self._same[id(part)] = same
        compared = [part[key] for key in _COMPARED if key in part]
        self._own[id(part)] = 1 + len(json.dumps(compared)) // _BYTES_PER_STEP
        inner = [part[key] for key in (*_FURTHER, *_ITEMS, "propertyNames") if key in part]
        inner += chain.from_iterable(each.values() for each in maps.values())
        return [*same, *inner, *_listed(part, "prefixItems")]

    def _target(self, part: Mapping[str, Any]) -> list[Any]:
        where = part.get("$ref")
        if not isinstance(where, str):
            return []
        if where != "#" and not where.startswith("#/"):
            why = f"nothing is fetched for the reference {where[:200]!r}; use one that begins with #/"
            raise InvalidSchema(why, self.pointer(part, "$ref"))
        found: Any = self._root
        try:
            for key in unquote(where).split("/")[1:]:
                key = key.replace("~1", "/").replace("~0", "~")
                found = found[int(key)] if isinstance(found, list) else found[key]
        except (KeyError, IndexError, ValueError, TypeError):
            why = f"the reference {where[:200]!r} leads to nothing in them; add its target"
            raise InvalidSchema(why, self.pointer(part, "$ref")) from None
        return [found]

    def _fan_out(self, part: int) -> int:
        if part not in self._fans:
            self._fans[part] = None
            self._fans[part] = 1 + sum(self._fan_out(id(each)) for each in self._same[part] if isinstance(each, dict))
        known = self._fans[part]
        if known is None:
            why = "a reference leads back to itself without end; refer to something inside of the value"
            raise InvalidSchema(why, self.pointer(next(each for each in self.parts if id(each) == part)))
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


def plain_schema(part: Any, definitions: Mapping[str, Any] | None = None, *, names: bool = False) -> Any:
    """Returns a schema of pydantic's without references, which some readers do not resolve, and generated titles.

    ``names`` states that the keys of ``part`` are names of properties, not keywords.
    """
    if isinstance(part, list):
        return [plain_schema(each, definitions) for each in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    found = cast("dict[str, Any]", part)
    known: Mapping[str, Any] = found.get("$defs", {}) if definitions is None else definitions
    if names:
        return {name: plain_schema(each, known) for name, each in found.items()}
    if "$ref" in found:
        target = known[found["$ref"].rpartition("/")[2]]
        found = {**target, **{key: each for key, each in found.items() if key != "$ref"}}
    dropped = {"$defs", "title", "discriminator"}
    dropped |= {"default"} if isinstance(found.get("default"), dict) else set[str]()
    return {
        key: plain_schema(each, known, names=key == "properties") for key, each in found.items() if key not in dropped
    }
