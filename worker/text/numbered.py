"""Line numbers as the model sees them, ``     1|text``, and the way back from a pasted one."""

from __future__ import annotations

import re
from collections.abc import Iterable

_OURS = re.compile(r"(?=.{6,}?\|) *(\d+)\|")
_ANY = re.compile(r"[ \t]*(\d+)(?:\||\t|→|: ?|-(?=\s))")


def numbered(lines: Iterable[str], first: int = 1) -> str:
    return "\n".join(f"{number:6d}|{line}" for number, line in enumerate(lines, first))


def without_numbers(text: str, *, only_ours: bool = False) -> str | None:
    """The text without the numbers in front of its lines, or None unless all lines have one and they count on.

    ``only_ours`` takes no other form than that of ``numbered``, for texts that may well begin with numbers.
    """
    form = _OURS if only_ours else _ANY
    lines = text.split("\n")
    end = [lines.pop()] if len(lines) > 1 and not lines[-1] else []
    found = [form.match(line) for line in lines]
    numbers = [int(match[1]) for match in found if match]
    if len(numbers) < len(lines) or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return None
    return "\n".join([line[match.end() :] for line, match in zip(lines, found, strict=True) if match] + end)
