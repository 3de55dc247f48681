"""The arguments of tool calls: their JSON Schema, validation against it, and the errors for invalid ones."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from ...shared.errors import ErrorType, Misconfigured, ToolError
from ...shared.text import did_you_mean
from . import validation
from .pool import ValidationTimeout, ValidatorPool
from .validation import InvalidSchema

Arguments = Mapping[str, Any]
MAX_STEPS = 10_000
"""Steps of a validation on the event loop: about 20 ms. A slower one runs in a separate process."""
MAX_TEXT = 64 * 1024
"""Characters of arguments that are validated on the event loop."""
MAX_OVERRUNS = 3
"""Validation timeouts after which a tool cannot be called any more."""
CHOICES = ("allOf", "anyOf", "oneOf")
"""Choices between whole sets of arguments."""
_APPLICATORS = {*CHOICES, "$ref", "if", "patternProperties"}
"""Keywords with which a schema has properties outside of ``properties``."""
_MAX_DETAILS = 2000
"""Characters of the mistakes in one message."""
_MAX_NAME = 100
"""Characters of an unknown tool name that are repeated to the model."""


class ArgumentSchema:
    """A valid schema. Validating one value takes at most ``cost`` steps, or an unknown number if None."""

    def __init__(self, tool: str, schema: Mapping[str, Any], cost: int | None) -> None:
        self.schema = schema
        self._tool = tool
        self._cost = cost
        self._overruns = 0

    @classmethod
    async def untrusted(cls, tool: str, schema: Mapping[str, Any], validators: ValidatorPool) -> ArgumentSchema:
        """Checks an untrusted schema off the event loop. Raises ``Misconfigured`` that names the tool."""
        whole = _complete(schema)
        try:
            return cls(tool, whole, await validators.cost(whole))
        except InvalidSchema as error:
            raise _misconfigured(tool, error) from None

    @classmethod
    def trusted(cls, tool: str, schema: Mapping[str, Any]) -> ArgumentSchema:
        """Checks a trusted schema at once. Raises ``Misconfigured`` that names the tool."""
        whole = _complete(schema)
        return cls(tool, whole, _cost(tool, whole))

    def is_cheap(self, arguments: Arguments) -> bool:
        """Whether these arguments can be validated on the event loop."""
        return self._cost is not None and _is_small(arguments, MAX_STEPS // self._cost)

    async def judge(self, arguments: Arguments, validators: ValidatorPool) -> None:
        """Validates arguments in a separate process, with a time limit. Raises ``ToolError`` as ``check`` does."""
        if self._overruns < MAX_OVERRUNS:
            try:
                with _schema_errors(self._tool):
                    found = await validators.mistakes(self.schema, arguments, slow=self._overruns > 0)
            except ValidationTimeout:
                self._overruns += 1
            else:
                _refuse(self._tool, found, self.schema)
                return
        advice = (
            "Continue without it"
            if self._overruns >= MAX_OVERRUNS
            else "Use other, shorter ones, or continue without it"
        )
        raise ToolError(
            ErrorType.INVALID_TOOL_PARAMS,
            f"{self._tool} cannot be called with these arguments: they cannot be validated against its schema within "
            f"{validators.seconds:g} seconds. {advice}.",
        )


def check(tool: str, schema: Mapping[str, Any], arguments: Arguments) -> None:
    """Validates arguments. Raises ``ToolError(INVALID_TOOL_PARAMS)`` with each mistake and the known parameters."""
    with _schema_errors(tool):
        found = validation.mistakes(schema, arguments)
    _refuse(tool, found, schema)


def valid_schema(tool: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the schema. Raises ``Misconfigured`` that names the tool if it is not a valid JSON Schema."""
    _cost(tool, schema)
    return schema


def _cost(tool: str, schema: Mapping[str, Any]) -> int | None:
    try:
        cost = validation.cost(schema, text := json.dumps(schema))
        if wrong := _schema_error(text):
            raise InvalidSchema(wrong)
    except InvalidSchema as error:
        raise _misconfigured(tool, error) from None
    return cost


@lru_cache(maxsize=256)
def _schema_error(schema: str) -> str | None:
    """Cached per worker: it takes milliseconds, and all runs have the same tools."""
    return validation.schema_error(json.loads(schema))


def _complete(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema with unknown parameters forbidden, unless it allows them."""
    closed = {} if _APPLICATORS & schema.keys() else {"additionalProperties": False}
    return {"type": "object", "properties": {}, **closed, **schema}


def _is_small(arguments: Arguments, values: int) -> bool:
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
def _schema_errors(tool: str) -> Generator[None]:
    try:
        yield
    except InvalidSchema as error:
        raise ToolError(
            ErrorType.INVALID_TOOL_PARAMS, f"{tool} cannot be called, its own parameter schema is invalid: {error}"
        ) from None


def _refuse(tool: str, mistakes: Sequence[Mapping[str, str]], schema: Mapping[str, Any]) -> None:
    if mistakes:
        raise invalid_arguments(tool, mistakes, schema.get("properties", {}))


def _misconfigured(tool: str, why: InvalidSchema) -> Misconfigured:
    return Misconfigured(f"the parameters of tool {tool!r} are not a valid JSON Schema: {why}")


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
