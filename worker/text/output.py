"""What is shown of a tool's result: its output to the model, and to a user text, a diff, a terminal or a todo list.

Nothing longer than its limit reaches the model or an event, and no cut is silent: the full text is saved where
``read_file`` and ``grep`` can read it, and the hint at the end of a cut text names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import quoteattr

from ...shared.text import safe_cut, terminal_text, valid
from ...shared.tokens import count

MAX_SAVED_CHARS = 16 * 1024 * 1024
MAX_ERROR_CHARS = 4000
MAX_DISPLAY_CHARS = 32_000
MAX_TITLE_CHARS = 120
HEAD_SHARE = 0.2
"""Share of the limit for the head of a command's output: the head shows the topic, the tail the errors."""

_MAX_WORD = 500
_WORD = re.compile(r"\S*\s")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

TodoStatus = Literal["pending", "in_progress", "completed", "cancelled"]

_MARKS: Mapping[TodoStatus, str] = {"pending": " ", "in_progress": ">", "completed": "x", "cancelled": "-"}


@dataclass(frozen=True, slots=True)
class OutputLimit:
    """How much of a tool's output the model receives. Read-like tools keep the head, commands both ends.

    Tokens are those of o200k: an upper bound for every model would cut most pages at half of what they may have.
    """

    max_chars: int = 8000
    keep: Literal["head", "head_tail"] = "head"
    max_tokens: int | None = None


def one_line(name: str) -> str:
    """Returns a file name without line breaks and other control characters, which are legal in it."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], valid(name))


def few_tokens(text: str, most: int | None) -> bool:
    """Whether the text is too short to exceed ``most`` tokens: a byte is at most one token."""
    return most is None or len(text) * 4 <= most or len(text.encode("utf-8", "surrogatepass")) <= most


def hint_of(tool: str, actual_chars: int, max_chars: int, saved: str | None = None, lines: int = 0) -> str:
    """Returns the hint for a cut text: that it was cut, how long it is, what to do next.

    ``lines`` is how many lines of its beginning are shown, 0 where the cut is inside a line.
    """
    where = f" full_output={quoteattr(saved)}" if saved else ""
    part = f"from offset={lines + 1}, line {lines} is the last one shown" if lines else "offset, limit"
    then = (
        f"The whole output is in {saved}: read it in parts with read_file ({part}) or search it with grep."
        if saved
        else "Call the tool again with offset/limit or a narrower question to see the rest."
    )
    return _hint(tool, f'actual_chars="{actual_chars}" max_chars="{max_chars}"{where}', then)


def lines_hint_of(tool: str, actual_lines: int | None, max_lines: int, then: str) -> str:
    """The same for a page of lines; ``actual_lines`` is None where they were not counted."""
    return _hint(tool, f'actual_lines="{actual_lines or "unknown"}" max_lines="{max_lines}"', then)


def _hint(tool: str, sizes: str, then: str) -> str:
    return (
        f'<system_hint type="tool_output_omitted" tool={quoteattr(tool)} reason="too_long" {sizes}>\n'
        f"The output was too long and was cut automatically. {then}\n</system_hint>"
    )


def shorten(text: str, limit: OutputLimit) -> str:
    """Returns the text, cut to the limit."""
    room = limit.max_chars
    kept = _keep(text, room, limit.keep)
    if limit.max_tokens is None:
        return kept
    while room and (tokens := count(kept)) > limit.max_tokens:
        # Tokens are not spread evenly, so the size is corrected until it fits; 0.95 makes that quick.
        room = int(min(room, len(kept)) * limit.max_tokens / tokens * 0.95)
        kept = _keep(text, room, limit.keep)
    return kept


def word_start(text: str, at: int) -> int:
    """Returns where to begin instead of inside of a word: the end of a credential could not be recognized.

    Within a very long word it is the place itself.
    """
    if not 0 < at < len(text) or text[at - 1].isspace():
        return at
    word = _WORD.match(text, at, at + _MAX_WORD)
    return at if word is None else word.end()


def _keep(text: str, room: int, keep: str) -> str:
    if len(text) <= room:
        return text
    if keep == "head":
        line_end = text.rfind("\n", room // 2, room + 1)
        return text[: safe_cut(text, room if line_end < 0 else line_end)]
    head = text[: safe_cut(text, int(room * HEAD_SHARE))]
    tail = text[safe_cut(text, word_start(text, len(text) - (room - len(head))), forwards=True) :]
    return f"{head}\n[… {len(text) - len(head) - len(tail)} characters left out …]\n{tail}"


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
