"""The JSON Schema of a tool, and the validation of a call's arguments against it."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from shared.errors import ErrorType, Misconfigured, ToolError
from worker.schemas import validation
from worker.schemas.arguments import invalid_arguments
from worker.schemas.pool import TooSlow, ValidatorPool
from worker.schemas.validation import Misdeclared

Arguments = Mapping[str, Any]
MAX_STEPS = 10_000
"""Of a validation on the event loop: about 20 ms. A slower one runs in a separate process."""
MAX_TEXT = 64 * 1024
"""Characters of arguments that are validated on the event loop."""
MAX_OVERRUNS = 3
"""Validation timeouts after which a tool cannot be called any more."""
CHOICES = ("allOf", "anyOf", "oneOf")
"""Choices between whole sets of arguments."""
_SPREAD = {*CHOICES, "$ref", "if", "patternProperties"}
"""Keywords with which a schema has properties outside of ``properties``."""


class Declared:
    """A valid schema. Validating one value takes at most ``cost`` steps, or an unknown number if None."""

    def __init__(self, tool: str, schema: Mapping[str, Any], cost: int | None) -> None:
        self.schema = schema
        self._tool = tool
        self._cost = cost
        self._overruns = 0

    @classmethod
    async def by_stranger(cls, tool: str, schema: Mapping[str, Any], validators: ValidatorPool) -> Declared:
        """Checks an untrusted schema off the event loop. Raises ``Misconfigured`` that names the tool."""
        whole = _completed(schema)
        try:
            return cls(tool, whole, await validators.cost(whole))
        except Misdeclared as error:
            raise _misconfigured(tool, error) from None

    @classmethod
    def by_operator(cls, tool: str, schema: Mapping[str, Any]) -> Declared:
        """Checks a trusted schema at once. Raises ``Misconfigured`` that names the tool."""
        whole = _completed(schema)
        return cls(tool, whole, _cost(tool, whole))

    def is_cheap(self, arguments: Arguments) -> bool:
        """Whether these arguments can be validated on the event loop."""
        return self._cost is not None and _few(arguments, MAX_STEPS // self._cost)

    async def judge(self, arguments: Arguments, validators: ValidatorPool) -> None:
        """Validates arguments in a separate process, with a time limit. Raises ``ToolError`` as ``check`` does."""
        if self._overruns < MAX_OVERRUNS:
            try:
                with _answered(self._tool):
                    found = await validators.mistakes(self.schema, arguments, slow=self._overruns > 0)
            except TooSlow:
                self._overruns += 1
            else:
                _refuse(self._tool, found, self.schema)
                return
        advice = "Do without it" if self._overruns >= MAX_OVERRUNS else "Use other, shorter ones, or do without it"
        raise ToolError(
            ErrorType.INVALID_TOOL_PARAMS,
            f"{self._tool} cannot be called with these arguments: whether they fit its schema cannot be decided within "
            f"{validators.seconds:g} seconds. {advice}.",
        )


def check(tool: str, schema: Mapping[str, Any], arguments: Arguments) -> None:
    """Validates arguments. Raises ``ToolError(INVALID_TOOL_PARAMS)`` with each mistake and the known parameters."""
    with _answered(tool):
        found = validation.mistakes(schema, arguments)
    _refuse(tool, found, schema)


def valid_schema(tool: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the schema. Raises ``Misconfigured`` that names the tool if it is not a valid JSON Schema."""
    _cost(tool, schema)
    return schema


def _cost(tool: str, schema: Mapping[str, Any]) -> int | None:
    try:
        cost = validation.cost(schema, text := json.dumps(schema))
        if wrong := _wrong_in(text):
            raise Misdeclared(wrong)
    except Misdeclared as error:
        raise _misconfigured(tool, error) from None
    return cost


@lru_cache(maxsize=256)
def _wrong_in(schema: str) -> str | None:
    """Cached per worker: it takes milliseconds, and all runs have the same tools."""
    return validation.wrong_in(json.loads(schema))


def _completed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema with unknown parameters forbidden, unless it allows them."""
    closed = {} if _SPREAD & schema.keys() else {"additionalProperties": False}
    return {"type": "object", "properties": {}, **closed, **schema}


def _few(arguments: Arguments, values: int) -> bool:
    """Whether the arguments have at most that many values and are short."""
    room, waiting = MAX_TEXT, list[Any]([arguments])
    while waiting:
        value = waiting.pop()
        values -= 1
        if isinstance(value, dict):
            room -= sum(map(len, value))
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        else:
            room -= len(value) if isinstance(value, str) else 8
        if room < 0 or len(waiting) > values:
            return False
    return True


@contextmanager
def _answered(tool: str) -> Generator[None]:
    try:
        yield
    except Misdeclared as error:
        raise ToolError(
            ErrorType.INVALID_TOOL_PARAMS, f"{tool} cannot be called, its own parameters are declared wrongly: {error}"
        ) from None


def _refuse(tool: str, mistakes: Sequence[Mapping[str, str]], schema: Mapping[str, Any]) -> None:
    if mistakes:
        raise invalid_arguments(tool, mistakes, schema.get("properties", {}))


def _misconfigured(tool: str, why: Misdeclared) -> Misconfigured:
    return Misconfigured(f"the parameters of tool {tool!r} are not a valid JSON Schema: {why}")
