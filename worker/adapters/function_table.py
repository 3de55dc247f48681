"""The function-table style: name → {description, parameters, execute}; ``execute(arguments)`` returns a text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypedDict

from ..tools.base import Effect, Kind, ToolResult
from ..tools.context import ToolContext
from .adapter import (
    AbortSignal,
    Parameters,
    ToolAdapter,
    as_text,
    call_function,
    failure_result,
)

ERROR_PREFIXES = ("Error:", "错误\uff1a")
"""Prefixes of texts that report an error."""


class TableEntry(TypedDict):
    """One entry. ``execute`` receives an instance if ``parameters`` is a pydantic model, and a mapping if it is a
    JSON Schema."""

    description: str
    parameters: Parameters
    execute: Callable[[Any], Awaitable[str] | str]


class TableEntryAdapter(ToolAdapter):
    """Adapts an entry. A text that begins with an error prefix is a failure."""

    def __init__(self, name: str, entry: TableEntry, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> None:
        super().__init__(name, entry["description"], entry["parameters"], kind, effect)
        self._execute = entry["execute"]

    async def call(self, ctx: ToolContext, params: Any, signal: AbortSignal) -> ToolResult:
        text = as_text(await call_function(self._execute, params))
        for prefix in ERROR_PREFIXES:
            if text.startswith(prefix):
                return failure_result(text.removeprefix(prefix).strip())
        return ToolResult(text)


def adapt_table(table: Mapping[str, TableEntry]) -> list[TableEntryAdapter]:
    """Returns adapters for all tools of a table, in order."""
    return [TableEntryAdapter(name, entry) for name, entry in table.items()]
