"""A tool whose parameters are a JSON Schema instead of a model: MCP, discovered tools, tools of other designs (C27)."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.exceptions import Unresolvable

from shared.errors import ErrorType, Misconfigured, ToolError
from worker.output import clip
from worker.tools.base import Effect, Kind, Params, Tool, ToolContext, ToolResult, invalid_arguments

MAX_MISTAKES = 5
Arguments = Mapping[str, Any]
MAX_TOLD = 4000
"""Characters of a schema's choices that the description repeats."""
_PARAMETER = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""Names of parameters that model providers take; with one other, they refuse the whole conversation."""
_CHOICES = ("allOf", "anyOf", "oneOf")
"""Choices between whole sets of arguments, which models do not take in a schema: they are told in words."""
_SPREAD = {*_CHOICES, "$ref", "if", "patternProperties"}
"""Where one of these stands, a schema's properties are not all in ``properties``."""


class DeclaredTool(Tool[Any]):
    """A tool made from data: name, description and schema are the instance's own.

    The schema is the truth: arguments are checked against it and passed on as they are; parameters it does not name
    are refused unless it allows them. Raises ``Misconfigured`` for a schema that is none, or that no model takes.
    """

    params = Params

    def __init__(
        self, name: str, description: str, schema: Mapping[str, Any], *, kind: Kind = Kind.OTHER, effect: Effect
    ) -> None:
        self.name = name
        self.kind = kind
        self.effect = effect
        closed = {} if _SPREAD & schema.keys() else {"additionalProperties": False}
        self._schema: dict[str, Any] = {"type": "object", "properties": {}, **closed, **schema}
        self._validator = validator(name, self._schema)
        if wrong := [key for key in self._schema["properties"] if not _PARAMETER.fullmatch(key)]:
            raise Misconfigured(f"models take no parameter that is called {wrong[0][:100]!r}")
        choices = {key: schema[key] for key in _CHOICES if key in schema}
        told = f"\n\nThe arguments must also fit: {clip(json.dumps(choices), MAX_TOLD)}" if choices else ""
        self._description = description + told
        self._shown = {key: value for key, value in self._schema.items() if key not in _CHOICES}

    @property
    def description(self) -> str:
        return self._description

    @property
    def schema(self) -> dict[str, Any]:
        """As models take it; the description has what it leaves out."""
        return self._shown

    def parse(self, arguments: Arguments) -> Any:
        check(self.name, self._validator, arguments)
        return dict(arguments)

    @abstractmethod
    async def run(self, ctx: ToolContext, params: Any) -> ToolResult: ...


def validator(tool: str, schema: Mapping[str, Any]) -> Validator:
    """The one validator for JSON Schemas; it fetches nothing. Raises ``Misconfigured`` that names the tool."""
    if wrong := _wrong_in(json.dumps(schema)):
        raise Misconfigured(f"the parameters of tool {tool!r} are no JSON Schema: {wrong}")
    return Draft202012Validator(schema, registry=Registry())


@lru_cache(maxsize=1024)
def _wrong_in(schema: str) -> str | None:
    """Judged once a worker: it takes milliseconds, and each run has the same tools."""
    try:
        Draft202012Validator.check_schema(json.loads(schema))
    except SchemaError as error:
        return error.message
    return None


def check(tool: str, validator: Validator, arguments: Arguments) -> None:
    """Raises ``ToolError(INVALID_TOOL_PARAMS)`` that names each mistake and the known parameters (C27)."""
    try:
        wrong = sorted(validator.iter_errors(dict(arguments)), key=lambda error: list(map(str, error.absolute_path)))
    except (Unresolvable, RecursionError) as error:  # a schema may refer to what is not there, or to itself for ever
        why = "its schema refers to itself without end" if isinstance(error, RecursionError) else str(error)[:500]
        raise ToolError(
            ErrorType.INVALID_TOOL_PARAMS, f"{tool} cannot be called, its own parameters are declared wrongly: {why}"
        ) from None
    if wrong:
        mistakes = [
            {"pointer": "/".join(map(str, error.absolute_path)), "detail": error.message[:500]}
            for error in wrong[:MAX_MISTAKES]
        ]
        schema: Any = validator.schema
        raise invalid_arguments(tool, mistakes, schema.get("properties", {}))
