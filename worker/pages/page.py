"""As much of a file as one answer holds, with line numbers, and what must be said of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared.text import clip
from shared.tokens import estimate
from worker.output import few_tokens
from worker.pages.stretch import LINE_CHARS, Stretch
from worker.text.textfile import numbered

PAGE_LINES = 2000
PAGE_TOKENS = 31_500
PAGE_CHARS = 126_000
"""A page and what is said below it stay inside the output limit of the tools that read, so that a page always ends at
a line's end."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much a page may hold."""

    lines: int = PAGE_LINES
    chars: int = PAGE_CHARS
    tokens: int = PAGE_TOKENS


def page(lines: Sequence[str], first: int, room: Room) -> tuple[str, int]:
    """As many of the lines as there is room for, numbered from ``first``, and how many those are; never less than one.

    Of each line at most ``LINE_CHARS`` characters are shown.
    """
    kept: list[str] = []
    size = 0
    for line in lines[: room.lines]:
        kept.append(clip(line, LINE_CHARS))
        size += len(kept[-1]) + 8
        if size > room.chars and len(kept) > 1:
            kept.pop()
            break
    text = numbered(kept, first)
    while len(kept) > 1 and not few_tokens(text, room.tokens) and (tokens := estimate(text)) > room.tokens:
        kept = kept[: max(1, int(len(kept) * room.tokens / tokens * 0.95))]
        text = numbered(kept, first)
    return text, len(kept)


def remarks(stretch: Stretch, *more: str) -> str:
    """What the lines do not show: encoding, line ends, a missing last one; "" where there is nothing to say."""
    said = [*more]
    if stretch.remarks:
        said.append(f"The file has {', '.join(stretch.remarks)}.")
    if stretch.total and not stretch.is_ended:
        said.append("There is no line end after the last line.")
    return f"({' '.join(said)})" if said else ""
