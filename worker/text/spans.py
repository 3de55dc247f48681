"""Stretches of a file and what comes in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worker.text.textfile import TextFile


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the file and what comes in its place."""

    start: int
    end: int
    text: str


def spliced(text: str, spans: Sequence[Span]) -> str:
    parts: list[str] = []
    end = 0
    for span in spans:
        parts += (text[end : span.start], span.text)
        end = span.end
    return "".join([*parts, text[end:]])


def line_start(text: str, at: int) -> int:
    """Where the line begins that ``at`` is in."""
    return text.rfind("\n", 0, at) + 1


def line_stop(text: str, at: int) -> int:
    """Where the line ends that ``at`` is in, before its line end."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end - (end > at and text[end - 1 : end] == "\r")


def line_numbers(text: str, spans: Sequence[Span]) -> tuple[int, ...]:
    """The lines in which the stretches begin; the first line is 1."""
    numbers: list[int] = []
    line, end = 1, 0
    for span in spans:
        line += text.count("\n", end, span.start)
        end = span.start
        numbers.append(line)
    return tuple(numbers)


def line_end(file: TextFile, start: int, end: int) -> str:
    """The line end of a stretch, or the file's where it has none."""
    stretch = file.text[start:end]
    return "\r\n" if "\r\n" in stretch else "\n" if "\n" in stretch else file.newline


def with_line_ends(text: str, style: str) -> str:
    return text if style == "\n" else text.replace("\r\n", "\n").replace("\n", style)
