"""The arguments of tool calls: their JSON Schema, validation against it, and the errors for invalid ones.

Validation holds up the event loop: ``shared/json_schema.py`` bounds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from typing import Any

from pydantic import BaseModel

from ...shared.errors import ErrorType, Misconfigured, ToolError
from ...shared.json_schema import CHOICES, InvalidSchema, TooManySteps, compiled, detail_of, plain_schema, slow_regex
from ...shared.text import did_you_mean
from ..text.compute_limit import ComputeLimit
from .strict_json import check_depth

Arguments = Mapping[str, Any]
MAX_ARGUMENTS = 1024 * 1024
PATTERN_SECONDS = 0.1
"""For all patterns of one validation that need the slower engine."""
_APPLICATORS = {*CHOICES, "$ref", "if", "patternProperties"}
"""Keywords with which a schema has properties outside of ``properties``."""
_MAX_EXPLAINED = 20_000
"""Steps of a validation whose mistakes are all collected: each takes 40 microseconds."""
_MAX_COPIED = 10_000_000
"""The product of steps and bytes up to which they are: each mistake may hold a copy of all arguments."""
_MAX_MISTAKES = 5
_MAX_DETAILS = 2000
"""Characters of the mistakes in one message."""
_MAX_NAME = 100
"""Characters of an unknown tool name that are repeated to the model."""


class ArgumentSchema:
    """A valid schema. Unknown parameters are forbidden, unless it allows them or is not ``closed``.

    Raises ``Misconfigured`` that names the tool. Large foreign schemas take tenths of a second: check them in a thread.
    """

    def __init__(self, tool: str, schema: Mapping[str, Any], *, closed: bool = True) -> None:
        self.schema: dict[str, Any] = dict(schema)
        if closed:
            forbidden = {} if _APPLICATORS & schema.keys() else {"additionalProperties": False}
            self.schema = {"type": "object", "properties": {}, **forbidden, **schema}
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
        self.limit = ComputeLimit(PATTERN_SECONDS)
        self._bounds, self._validator = compiled(text, partial(_SlowPattern, self))

    def mistakes(self, arguments: dict[str, Any]) -> list[dict[str, str]]:
        """Returns the first mistakes, as pointer and detail; empty for valid arguments. Raises ``TooManySteps``."""
        from jsonschema_rs import ValidationError

        try:
            size = len(json.dumps(check_depth(arguments), ensure_ascii=False).encode())
        except ValueError as error:
            return [{"pointer": "", "detail": str(error)}]
        if size > MAX_ARGUMENTS:
            return [{"pointer": "", "detail": f"they are longer than {MAX_ARGUMENTS} bytes of JSON"}]
        steps = self._bounds.steps(arguments)
        self.limit = ComputeLimit(PATTERN_SECONDS)
        if self._validator.is_valid(arguments):
            return []
        if steps <= _MAX_EXPLAINED and steps * size <= _MAX_COPIED:
            errors = self._validator.iter_errors(arguments)
        elif self._bounds.has_choices:  # a mistake consists of those of each choice
            return [{"pointer": "", "detail": "they do not match the schema; with fewer values, the mistake is named"}]
        else:
            errors = []
            try:
                self._validator.validate(arguments)
            except ValidationError as error:
                errors.append(error)
        found = sorted(errors, key=lambda error: list(map(str, error.instance_path)))
        return [
            {"pointer": "/".join(map(str, error.instance_path)), "detail": detail_of(error)}
            for error in found[:_MAX_MISTAKES]
        ]


class _SlowPattern:
    """A pattern with a time limit, which it shares with the other ones of a validation."""

    def __init__(self, validator: _Validator, parent: Any, pattern: str, path: Any) -> None:
        self._validator = validator
        self._pattern = slow_regex(pattern)

    def validate(self, value: Any) -> None:
        """Raises ValueError with the reason."""
        if not isinstance(value, str):
            return
        shown, pattern = (json.dumps(each, ensure_ascii=False) for each in (value, self._pattern.pattern))
        try:
            found = self._validator.limit.search(self._pattern, value)
        except TimeoutError:
            raise ValueError(f"{shown} takes too long to match against {pattern}; use a shorter value") from None
        if not found:
            raise ValueError(f"{shown} does not match {pattern}")


_compiled = lru_cache(maxsize=256)(_Validator)
"""Cached per worker: all runs have the same tools."""


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


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Returns the JSON Schema of a model, as ``plain_schema`` makes it."""
    return json.loads(_schema_text(model))


@lru_cache(maxsize=256)
def _schema_text(model: type[BaseModel]) -> str:
    """Cached for all runs: pydantic takes a millisecond to make a schema."""
    return json.dumps(plain_schema(model.model_json_schema()))
