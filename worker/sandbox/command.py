"""One command as every sandbox takes it, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Command:
    """One command line. ``cwd`` is relative to the workspace; ``timeout`` is in seconds."""

    argv: Sequence[str]
    timeout: float
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: bytes = b""
    max_output: int = 4 * 1024 * 1024
    """Bytes kept of each stream; what comes after is read, counted and dropped."""
    mark: str = ""
    """A name under which the sandbox keeps, out of the command's reach, that it began and how it ended."""
    keep: str = "head_tail"
    """``head`` or ``head_tail``: which end of a stream is kept when it is over ``max_output``."""
    merged: bool = False
    """Standard error goes where standard output goes, in the order of writing."""


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended. ``exit_code`` is -9 and ``timed_out`` true when its time ran out."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    dropped_bytes: int = 0
    seconds: float = 0.0
