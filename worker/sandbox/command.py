"""A command for a sandbox, its result, and the status file that survives the loss of the worker."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ...shared.openat2 import beneath

NOT_STARTED = 125
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Command:
    """One command line. ``cwd`` is relative to the workspace; ``timeout`` is in seconds."""

    argv: Sequence[str]
    timeout: float
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: bytes = b""
    max_output: int = 4 * 1024 * 1024
    """Bytes kept per stream; the rest is read, counted and dropped."""
    status_file: str = ""
    """Name of the file in which the sandbox records start and exit code, out of the command's reach; "" for none."""
    keep: str = "head_tail"
    """``head`` or ``head_tail``: the part of a stream that is kept when it is longer than ``max_output``."""
    merged: bool = False
    """Whether standard error is redirected to standard output."""
    reads: tuple[str, ...] = ()
    """The programs of a command that was judged to only read by their names: then these are the system's own."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The result of a command. On a timeout ``exit_code`` is -9 and ``timed_out`` true."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    dropped_bytes: int = 0
    seconds: float = 0.0
    exceeded: str = ""
    """The limit for which it was killed, as a sentence, or ""."""


def create_status_file(folder: Path, name: str) -> int:
    """Creates a status file and returns its descriptor. Raises OSError, also for a name outside of the folder."""
    return _open_status_file(folder, name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


def read_status_file(folder: Path, name: str) -> int | Literal[False] | None:
    """Returns the exit code in a status file; False if the command never started, None if its outcome is unknown.

    A death by a signal may be due to the loss of the worker, and 125 may be the guard's own exit code: in both cases
    the outcome is unknown.
    """
    try:
        with open(_open_status_file(folder, name, os.O_RDONLY), encoding="ascii", errors="replace") as status_file:
            text = status_file.read()
    except FileNotFoundError:
        return False
    except OSError:
        return None
    codes = re.findall(r'"exit-code"\s*:\s*(-?\d+)', text)
    code = int(codes[-1]) if codes else NOT_STARTED
    return code if 0 <= code < NOT_STARTED else None


def _open_status_file(folder: Path, name: str, flags: int) -> int:
    folder_fd = os.open(folder, _FOLDER)
    try:
        return beneath(folder_fd, name, flags | os.O_NOFOLLOW)
    finally:
        os.close(folder_fd)
