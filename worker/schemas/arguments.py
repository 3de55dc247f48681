"""The arguments of a call: how their schema is shown to models, and what is said of wrong ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shared.errors import ErrorType, ToolError

_MAX_SAID = 2000


def invalid_arguments(tool: str, mistakes: Iterable[Mapping[str, str]], known: Iterable[str]) -> ToolError:
    """What the model is told of wrong arguments: each mistake (``pointer``, ``detail``), and the known parameters."""
    said = "; ".join(f"{each['pointer'].lstrip('/') or 'arguments'}: {each['detail']}" for each in mistakes)
    return ToolError(
        ErrorType.INVALID_TOOL_PARAMS,
        f"invalid arguments for {tool}: {said[:_MAX_SAID]}. Known parameters: {', '.join(known) or 'none'}.",
    )


def plain_schema(schema: Any, defs: Mapping[str, Any] | None = None) -> Any:
    """The schema without pydantic's titles, and with its own definitions put where they are used."""
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
