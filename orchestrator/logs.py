"""The log files of a stack's programs: one a start, the one before beside it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

TAIL_BYTES = 64 * 1024
SAID_CHARACTERS = 300


def keep_last_log(log_file: Path) -> None:
    """A start begins a new file; the one before stays beside it."""
    with suppress(FileNotFoundError):
        log_file.replace(log_file.with_suffix(".log.1"))


def last_line(log_file: Path) -> str:
    """What a program said last, for whoever waits for it in vain; "" where it said nothing."""
    try:
        with log_file.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            lines = file.read(TAIL_BYTES).decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    line = next((line.strip() for line in reversed(lines) if line.strip()), "")
    with suppress(ValueError, TypeError, KeyError):
        line = str(json.loads(line)["message"])  # our own programs write JSON
    return line[:SAID_CHARACTERS]
