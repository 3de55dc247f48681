"""Line numbers as the model sees them, ``     1|text``, and the way back from a pasted one (C04)."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PREFIX = re.compile(r"^[ \t]*(\d+)(?:\||\t|→|-(?=\s)|: ?)")


def numbered(lines: Iterable[str], first: int = 1) -> str:
    return "\n".join(f"{number:6d}|{line}" for number, line in enumerate(lines, first))


def without_numbers(text: str) -> str | None:
    """The text without the line numbers in front of its lines, or None where they are not there on all of them."""
    lines = text.split("\n")
    if not lines[-1] and len(lines) > 1:
        lines, end = lines[:-1], "\n"
    else:
        end = ""
    found = [_PREFIX.match(line) for line in lines]
    numbers = [int(match[1]) for match in found if match]
    if len(numbers) < len(lines) or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return None
    return "\n".join(line[match.end() :] for line, match in zip(lines, found, strict=True) if match) + end
