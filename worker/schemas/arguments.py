"""The arguments of tool calls: their JSON Schema, validation against it, and the errors for invalid ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import regex

from ...shared.errors import ErrorType, Misconfigured, ToolError
from ...shared.text import did_you_mean
from ..strict_json import check_depth
from ..threads import ComputeLimit
from .bounds import CHOICES, Bounds, InvalidSchema, TooManySteps

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

Arguments = Mapping[str, Any]
MAX_ARGUMENTS = 1024 * 1024
PATTERN_SECONDS = 0.1
"""For all patterns of one validation that need the slower engine."""
_APPLICATORS = {*CHOICES, "$ref", "if", "patternProperties"}
"""Keywords with which a schema has properties outside of ``properties``."""
_LINEAR_BYTES = 16 * 1024
_LINEAR_NAME_BYTES = 128 * 1024
"""The size of a compiled pattern of values or names for the linear engine: its time per character grows with it."""
_MAX_SLOW_PATTERN = 1000
"""Characters of a pattern for the slower engine."""
_MAX_EXPLAINED = 20_000
"""Steps of a validation whose mistakes are all collected: each takes 40 microseconds."""
_MAX_COPIED = 10_000_000
"""The product of steps and bytes up to which they are: each mistake may hold a copy of all arguments."""
_MAX_MISTAKES = 5
_MAX_DETAIL = 500
"""Characters of one mistake; the middle of a longer one is left out, as it ends with what was expected."""
_MAX_DETAILS = 2000
"""Characters of the mistakes in one message."""
_MAX_NAME = 100
"""Characters of an unknown tool name that are repeated to the model."""
_SLOW_PATTERN = "slowPattern"
"""The keyword in place of ``pattern`` where the linear engine refuses a pattern: for look-around, or its size."""


class ArgumentSchema:
    """A valid schema. Unknown parameters are forbidden, unless it allows them or is not ``closed``.

    Raises ``Misconfigured`` that names the tool. Large foreign schemas take tenths of a second: check them in a thread.
    """

    def __init__(self, tool: str, schema: Mapping[str, Any], *, closed: bool = True) -> None:
        self.schema = _complete(schema) if closed else dict(schema)
        self._tool = tool
        try:
            self._validator = _compiled(json.dumps(self.schema))
        except (InvalidSchema, RecursionError) as error:
            why = error if isinstance(error, InvalidSchema) else "they are nested too deep"
            raise Misconfigured(f"the parameters of tool {tool!r} are not a valid JSON Schema: {why}") from None

    def check(self, arguments: Arguments) -> None:
        """Validates arguments. Raises ``ToolError(INVALID_TOOL_PARAMS)`` with the mistakes and the known parameters."""
        try:
            mistakes = self._validator.mistakes(dict(arguments))
        except TooManySteps:
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS,
                f"{self._tool} cannot be called with these arguments: validating them against its schema takes too "
                "long. Use fewer, shorter or less nested ones, or continue without it.",
            ) from None
        if mistakes:
            raise invalid_arguments(self._tool, mistakes, self.schema.get("properties", {}))


class _Validator:
    """Validates against one schema. Raises ``InvalidSchema`` for one that is invalid or could take too long."""

    def __init__(self, text: str) -> None:
        from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

        schema = json.loads(text)
        self._bounds = Bounds(schema)
        self._limit = ComputeLimit(PATTERN_SECONDS)
        validator = partial(
            Draft202012Validator,
            pattern_options=RegexOptions(size_limit=_LINEAR_NAME_BYTES),
            validate_formats=False,
            offline=True,
            keywords={_SLOW_PATTERN: partial(_SlowPattern, lambda: self._limit)},  # pyright: ignore[reportArgumentType]
        )

        for pattern in self._bounds.name_patterns:
            if not _is_linear(pattern, _LINEAR_NAME_BYTES):
                raise InvalidSchema(
                    f"in patternProperties, {pattern[:200]!r} is invalid, large or looks around; change it"
                )
        if slow := {each for each in self._bounds.patterns if not _is_linear(each, _LINEAR_BYTES)}:
            for pattern in slow:
                _slow_regex(pattern)
            schema = json.loads(text, object_hook=partial(_replace_patterns, slow))
        try:
            self._validator = validator(schema)
        except ValidationError as error:
            path = "/".join(map(str, error.instance_path))
            raise InvalidSchema(f"{path or 'the schema'}: {_shortened(_detail(error))}") from None

    def mistakes(self, arguments: dict[str, Any]) -> list[dict[str, str]]:
        """Returns the first mistakes, as pointer and detail; empty for valid arguments. Raises ``TooManySteps``."""
        try:
            size = len(json.dumps(check_depth(arguments), ensure_ascii=False).encode())
        except ValueError as error:
            return [{"pointer": "", "detail": str(error)}]
        if size > MAX_ARGUMENTS:
            return [{"pointer": "", "detail": f"they are longer than {MAX_ARGUMENTS} bytes of JSON"}]
        steps = self._bounds.steps(arguments)
        self._limit = ComputeLimit(PATTERN_SECONDS)
        if self._validator.is_valid(arguments):
            return []
        if steps <= _MAX_EXPLAINED and steps * size <= _MAX_COPIED:
            errors = self._validator.iter_errors(arguments)
        elif not self._bounds.has_choices:
            errors = self._first(arguments)
        else:  # a mistake consists of those of each choice
            return [{"pointer": "", "detail": "they do not match the schema; with fewer values, the mistake is named"}]
        found = sorted(errors, key=lambda error: list(map(str, error.instance_path)))
        return [
            {"pointer": "/".join(map(str, error.instance_path)), "detail": _shortened(_detail(error))}
            for error in found[:_MAX_MISTAKES]
        ]

    def _first(self, arguments: Arguments) -> Iterator[ValidationError]:
        from jsonschema_rs import ValidationError

        try:
            self._validator.validate(arguments)
        except ValidationError as error:
            yield error


class _SlowPattern:
    """A pattern with a time limit, which it shares with the other ones of a validation."""

    def __init__(self, limit: Callable[[], ComputeLimit], parent: Any, pattern: str, path: Any) -> None:
        self._limit = limit
        self._pattern = _slow_regex(pattern)

    def validate(self, value: Any) -> None:
        """Raises ValueError with the reason."""
        if not isinstance(value, str):
            return
        shown, pattern = (json.dumps(each, ensure_ascii=False) for each in (value, self._pattern.pattern))
        try:
            found = self._limit().search(self._pattern, value)
        except TimeoutError:
            raise ValueError(f"{shown} takes too long to match against {pattern}; use a shorter value") from None
        if not found:
            raise ValueError(f"{shown} does not match {pattern}")


def _is_linear(pattern: str, size: int) -> bool:
    """Returns whether the linear engine supports the pattern, with this size at most."""
    from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

    try:
        Draft202012Validator({"pattern": pattern}, pattern_options=RegexOptions(size_limit=size))
    except ValidationError:
        return False
    return True


def _slow_regex(pattern: str) -> regex.Pattern[str]:
    """Raises ``InvalidSchema`` for a pattern that is invalid, or so long that compiling it takes long."""
    if len(pattern) > _MAX_SLOW_PATTERN:
        raise InvalidSchema(f"the pattern {pattern[:200]!r}… is too large; simplify it")
    try:
        return regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise InvalidSchema(f"the pattern {pattern[:200]!r} is not a valid regular expression: {error}") from None


@lru_cache(maxsize=256)
def _compiled(text: str) -> _Validator:
    """Cached per worker: all runs have the same tools."""
    return _Validator(text)


def _complete(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema with unknown parameters forbidden, unless it allows them."""
    closed = {} if _APPLICATORS & schema.keys() else {"additionalProperties": False}
    return {"type": "object", "properties": {}, **closed, **schema}


def _replace_patterns(slow: set[str], part: dict[str, Any]) -> dict[str, Any]:
    pattern = part.get("pattern")
    if isinstance(pattern, str) and pattern in slow:
        return {_SLOW_PATTERN if key == "pattern" else key: value for key, value in part.items()}
    return part


def _detail(error: ValidationError) -> str:
    """Returns the message, with the choices and alternatives that the library leaves out."""
    if options := getattr(error.kind, "options", None):
        value, *choices = (json.dumps(each, ensure_ascii=False) for each in [error.instance, *options])
        return f"{value} is not one of {', '.join(choices)}"
    if alternatives := [each[0] for each in getattr(error.kind, "context", []) if each]:
        return f"{error.message}: {', or '.join(dict.fromkeys(map(_detail, alternatives)))}"
    return error.message


def _shortened(detail: str) -> str:
    half = _MAX_DETAIL // 2 - 1
    return detail if len(detail) <= _MAX_DETAIL else f"{detail[:half]} … {detail[-half:]}"


def unknown_tool(name: str, known: Iterable[str]) -> ToolError:
    """Returns the error for a tool that the run does not have, with similar names or all known ones."""
    known = [*known]
    near = did_you_mean(name[:_MAX_NAME], known)
    hint = near.replace("did", "Did", 1) if near else f"Available tools: {', '.join(known)}."
    return ToolError(ErrorType.UNKNOWN_TOOL, f"there is no tool {name[:_MAX_NAME]!r} in this run. {hint}")


def invalid_arguments(tool: str, mistakes: Iterable[Mapping[str, str]], known: Iterable[str]) -> ToolError:
    """Returns the error for invalid arguments: each mistake (``pointer``, ``detail``) and the known parameters."""
    details = "; ".join(f"{each['pointer'].lstrip('/') or 'arguments'}: {each['detail']}" for each in mistakes)
    return ToolError(
        ErrorType.INVALID_TOOL_PARAMS,
        f"invalid arguments for {tool}: {details[:_MAX_DETAILS]}. Known parameters: {', '.join(known) or 'none'}.",
    )


def plain_schema(schema: Any, defs: Mapping[str, Any] | None = None) -> Any:
    """Returns the schema without pydantic's titles and with its ``$defs`` inlined."""
    if isinstance(schema, list):
        return [plain_schema(part, defs) for part in schema]
    if not isinstance(schema, dict):
        return schema
    defs = schema.get("$defs", defs) or {}
    if "$ref" in schema:
        return plain_schema(defs[schema["$ref"].rsplit("/", 1)[-1]], defs)
    return {
        key: {name: plain_schema(part, defs) for name, part in value.items()}
        if key == "properties"
        else plain_schema(value, defs)
        for key, value in schema.items()
        if key not in ("$defs",) and not (key == "title" and isinstance(value, str))
    }
