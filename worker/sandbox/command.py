"""A command for a sandbox, and its result."""

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
    """Bytes kept per stream; the rest is read, counted and dropped."""
    mark: str = ""
    """The name under which the sandbox records, out of the command's reach, that it started and how it ended."""
    keep: str = "head_tail"
    """``head`` or ``head_tail``: the part of a stream that is kept when it is longer than ``max_output``."""
    merged: bool = False
    """Whether standard error is redirected to standard output."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The result of a command. On a timeout ``exit_code`` is -9 and ``timed_out`` true."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    dropped_bytes: int = 0
    seconds: float = 0.0
