"""Function table: name → {description, parameters, execute}; ``execute(arguments)`` gives text, errors as text too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypedDict

from worker.adapters.foreign import AbortSignal, Adapted, Parameters, as_text, called, failed
from worker.tools.base import Effect, Kind, ToolResult
from worker.tools.context import ToolContext

ERRORS = ("Error:", "错误\uff1a")
"""How that design's texts begin when they tell of a failure."""


class Entry(TypedDict):
    """One line of the table. ``parameters`` is a pydantic model, of which ``execute`` gets an instance, or a
    JSON Schema; then it gets a mapping."""

    description: str
    parameters: Parameters
    execute: Callable[[Any], Awaitable[str] | str]


class AdaptedEntry(Adapted):
    """A text that begins as an error is a failure."""

    def __init__(self, name: str, entry: Entry, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> None:
        super().__init__(name, entry["description"], entry["parameters"], kind, effect)
        self._execute = entry["execute"]

    async def call(self, ctx: ToolContext, params: Any, signal: AbortSignal) -> ToolResult:
        text = as_text(await called(self._execute, params))
        for beginning in ERRORS:
            if text.startswith(beginning):
                return failed(text.removeprefix(beginning).strip())
        return ToolResult(text)


def adapted_table(table: Mapping[str, Entry]) -> list[AdaptedEntry]:
    """All tools of a table, in its order."""
    return [AdaptedEntry(name, entry) for name, entry in table.items()]
