"""Marks: what bubblewrap writes, out of a command's reach, of the command's begin and end."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from worker.linux.openat2 import beneath

NOT_BEGUN = 125
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def new_mark(folder: Path, name: str) -> int:
    """A descriptor to write a new mark to. Raises OSError, also for a name that leads out of the folder."""
    return _opened(folder, name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


def outcome_in(folder: Path, name: str) -> int | Literal[False] | None:
    """A command's exit code as its mark has it; False where it never began, None where nobody can rely on it.

    A command that a signal ended may have been ended by the loss of its worker, and 125 may be the guard's, which
    got no word any more: both are nothing to rely on.
    """
    try:
        with open(_opened(folder, name, os.O_RDONLY), encoding="ascii", errors="replace") as mark:
            said = mark.read()
    except FileNotFoundError:
        return False
    except OSError:
        return None
    codes = re.findall(r'"exit-code"\s*:\s*(-?\d+)', said)
    code = int(codes[-1]) if codes else NOT_BEGUN
    return code if 0 <= code < NOT_BEGUN else None


def _opened(folder: Path, name: str, flags: int) -> int:
    opened = os.open(folder, _FOLDER)
    try:
        return beneath(opened, name, flags | os.O_NOFOLLOW)
    finally:
        os.close(opened)
