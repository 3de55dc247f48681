"""What a terminal shows in the end of a program that moves the cursor up, as one with several progress bars does."""

from __future__ import annotations

import re
from collections.abc import Callable

_SCREEN = r"\x1b\[(?:(?P<by>\d{0,3})(?P<move>[ABEF])|0?J)"
_SPLIT = r"(\x1b\[\d{0,3}[ABEF]|\x1b\[0?J|\n)"


def last_screen(output: str, last_state: Callable[[str], str]) -> str:
    """Returns the lines after all that is overwritten; ``last_state`` returns that of one line."""
    lines, at = [""], 0
    for part in re.split(_SPLIT, output):
        found = re.fullmatch(_SCREEN, part)
        if part == "\n" or (found and found["move"] in ("B", "E")):
            at += int(found["by"] or 1) if found else 1
            lines += [""] * (at + 1 - len(lines))
        elif found and found["move"]:
            at = max(0, at - int(found["by"] or 1))
        elif found:  # erases what is below
            del lines[at + 1 :]
        else:
            lines[at] = last_state(f"{lines[at]}\r{part}" if part else lines[at])
    return "\n".join(lines)
