"""What a user interface shows of a tool's result: text, a file diff, terminal output or a todo list.

A tool returns one of these types; the step stores it as text, because every reader of events can show text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ...shared.text import terminal_text

TodoStatus = Literal["pending", "in_progress", "completed", "cancelled"]

_MARKS: Mapping[TodoStatus, str] = {"pending": " ", "in_progress": ">", "completed": "x", "cancelled": "-"}


@dataclass(frozen=True, slots=True)
class FileDiff:
    """The change of one file as a unified diff; the counts are lines."""

    path: str
    diff: str
    added: int
    removed: int

    def __str__(self) -> str:
        return self.diff


@dataclass(frozen=True, slots=True)
class AnsiOutput:
    """Terminal output with its colours and other control sequences."""

    output: str

    def __str__(self) -> str:
        return terminal_text(self.output)


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One item of a todo list."""

    description: str
    status: TodoStatus


@dataclass(frozen=True, slots=True)
class TodoList:
    """The items with their status, in the order of the list."""

    items: tuple[TodoItem, ...]

    def __str__(self) -> str:
        return "\n".join(
            f"{number}. [{_MARKS[item.status]}] {item.description}" for number, item in enumerate(self.items, 1)
        )


Display = str | FileDiff | AnsiOutput | TodoList
"""``str()`` of each is its text."""
