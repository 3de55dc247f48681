"""Marks: files in which bubblewrap records, out of a command's reach, the command's start and end."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from worker.linux.openat2 import beneath

NOT_BEGUN = 125
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def new_mark(folder: Path, name: str) -> int:
    """Returns a descriptor of a new mark. Raises OSError, also for a name that leads out of the folder."""
    return _opened(folder, name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


def outcome_in(folder: Path, name: str) -> int | Literal[False] | None:
    """Returns the exit code in a command's mark; False if it never started, None if the outcome is unknown.

    An exit by a signal may be due to the loss of the worker, and 125 may be the guard's exit code for a missing start
    word: in both cases the outcome is unknown.
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
