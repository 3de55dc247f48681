"""Tool calls: the argument schema for models, and the errors for unknown tools and invalid arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shared.errors import ErrorType, ToolError
from shared.text import did_you_mean

_MAX_DETAILS = 2000
"""Characters of the mistakes in one message."""
_MAX_NAME = 100
"""Characters of an unknown tool name that are repeated to the model."""


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
