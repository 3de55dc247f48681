"""The final screen of a program that moves the cursor up, as one with several progress bars does."""

from __future__ import annotations

import re
from collections.abc import Callable

_SCREEN = r"\x1b\[(?:(?P<by>\d{0,3})(?P<move>[ABEF])|0?J)"
_ROWS = 1000
"""Rows that moves reach; below them a move adds one row at most."""
_SPLIT = r"(\x1b\[\d{0,3}[ABEF]|\x1b\[0?J|\n)"


def last_screen(output: str, overwrite: Callable[[list[str], str], object]) -> str:
    """Returns the lines after all that is overwritten; ``overwrite`` writes a text from the begin of a line's cells.

    Its time is linear in the length: the output may be an attack.
    """
    lines, at = list[list[str]]([[]]), 0
    for part in re.split(_SPLIT, output):
        found = re.fullmatch(_SCREEN, part)
        if part == "\n" or (found and found["move"] in ("B", "E")):
            at = min(at + (int(found["by"] or 1) if found else 1), max(len(lines), _ROWS))
            lines += ([] for _ in range(at + 1 - len(lines)))
        elif found and found["move"]:
            at = max(0, at - int(found["by"] or 1))
        elif found:  # erases what is below
            del lines[at + 1 :]
        elif part:
            overwrite(lines[at], part)
    return "\n".join(map("".join, lines))
