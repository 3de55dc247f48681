"""What a tool call needs of the machine, and the signal that stops a run. It imports no other package of the worker.

A tool call needs the run's files, and a sandbox for commands. The packages ``workspace`` and ``sandbox`` implement
these protocols, and ``services`` and ``attempts`` hand their objects in. So the loop and the contract of tools can be
read, tested and loaded without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from pathlib import Path
from typing import Literal, Protocol

EntryKind = Literal["file", "directory", "symlink", "other"]


@dataclass(frozen=True, slots=True)
class Stat:
    """The status of a path: ``size`` in bytes, ``mtime_ns`` in nanoseconds, ``mode`` as permission bits."""

    kind: EntryKind
    size: int
    mtime_ns: int
    mode: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An entry of a directory; ``path`` is relative to the workspace. Links are not followed."""

    path: str
    stat: Stat

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class FileAccess(Protocol):
    """The files of one workspace, or of one directory that is shown for reading.

    Paths are relative, or absolute below ``mount`` or ``root``. Every method raises ToolError(PATH_NOT_ALLOWED) for a
    path that leads elsewhere.
    """

    root: Path
    """The directory, as the worker sees it."""
    mount: str
    """The directory, as commands see it."""
    is_local: bool
    """Whether the files are known to be on a local disk: a small read never waits long there."""

    def relative(self, path: str) -> str:
        """Returns the path relative to the directory. No file is opened."""
        ...

    def full(self, path: str) -> str:
        """Returns the absolute path as commands see it."""
        ...

    def real(self, path: str) -> str:
        """Returns the absolute path with links resolved; the file need not exist."""
        ...

    def open_fd(self, path: str, flags: int = ...) -> int:
        """Opens the path and returns its descriptor, which the caller closes; for reading without ``flags``."""
        ...

    def read(self, path: str, max_bytes: int = ...) -> bytes:
        """Reads a regular file of at most so many bytes."""
        ...

    def head(self, path: str, size: int) -> bytes:
        """Reads the first bytes of a regular file."""
        ...

    def stat(self, path: str, *, follow: bool = True) -> Stat | None:
        """Returns the status of the path, or None if it does not exist."""
        ...

    def write(self, path: str, data: bytes, *, keep_mode: bool = True) -> bool:
        """Replaces or creates a file atomically, with its parents; returns whether it was created."""
        ...

    def private_path(self, path: str) -> str:
        """Returns the path of a file in the worker's own directory, which is created and ignored by git."""
        ...

    def write_private(self, path: str, data: bytes) -> str:
        """Writes a file in the worker's own directory; returns its path in the workspace."""
        ...

    def scan(self, path: str = ".") -> list[FileEntry]:
        """Returns the entries of a directory, sorted by name."""
        ...


@dataclass(frozen=True, slots=True)
class Command:
    """One command line. ``cwd`` is relative to the workspace; ``timeout`` is in seconds; None: it has none."""

    argv: Sequence[str]
    timeout: float | None
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
    keeps_priority: bool = False
    """Whether commands that are started later do not go first, however long this one lasts."""
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
    found_full_disk: bool = False
    """Whether it failed while its disk was full, which takes files again now."""
    ended: tuple[str, ...] = ()
    """The names of the processes that it left behind, which ended with it."""
    lost: tuple[str, ...] = ()
    """The names of the files that it left in /tmp, which is also its home, and which are gone."""


class ShellStatus(StrEnum):
    """The status of a background shell."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    """It ended with a non-zero exit code."""
    TERMINATED = "terminated"
    """``bash_kill`` ended it."""
    ERROR = "error"
    """It could not be started."""


@dataclass(frozen=True, slots=True)
class ShellOutput:
    """The result of one read of a background shell: its new output and its status.

    ``text`` has ``shown`` of ``lines`` lines; the first ``earlier`` lines are not new, but were hidden by a filter
    before. ``exit_code`` is None while it runs.
    """

    text: str
    lines: int
    shown: int
    lost_bytes: int
    status: ShellStatus
    exit_code: int | None
    earlier: int = 0
    lost_lines: int = 0


class Shell(Protocol):
    """A command that runs while the model does other things, until it or its run ends."""

    bash_id: str
    start_time: datetime

    @property
    def running(self) -> bool: ...

    @property
    def failure(self) -> str | None:
        """Why it could not be started, if so."""
        ...

    @property
    def hides_lines(self) -> bool:
        """Whether a filter has hidden lines that are still unread."""
        ...

    async def wait_for_output(self, seconds: float) -> None:
        """Waits until it prints something or ends, or for ``seconds``."""
        ...

    async def read(self, pattern: str | None = None) -> ShellOutput:
        """Returns the output since the last read; with a pattern only the matching lines."""
        ...

    async def stop(self) -> None:
        """Ends it with all its processes, and returns when they have ended."""
        ...


class Shells(Protocol):
    """The background shells of one run, by id."""

    def __iter__(self) -> Iterator[Shell]: ...

    async def start(self, line: str, command: Command) -> Shell:
        """Starts a command, displayed as ``line``, and does not wait for it."""
        ...

    def lookup(self, bash_id: str) -> Shell:
        """Returns the shell of that id. Raises ToolError with its fate, or with the known ids."""
        ...

    def remove(self, bash_id: str) -> None:
        """Removes a shell that has ended, with its output."""
        ...

    async def end(self) -> None:
        """Ends all of them."""
        ...


class Sandbox(Protocol):
    """Runs the commands of one run."""

    @property
    def broken(self) -> str | None:
        """Why commands cannot be run safely here, or None."""
        ...

    @property
    def shells(self) -> Shells: ...

    @property
    def reaped(self) -> list[str]:
        """The command lines of the processes killed so far."""
        ...

    def program(self, name: str) -> str | None:
        """Returns the path of a program inside the sandbox, or None if the sandbox lacks it."""
        ...

    def outcome(self, status_file: str) -> int | Literal[False] | None:
        """Returns the exit code of a command that another worker may have run.

        False if it never started, None if it started and its outcome is unknown.
        """
        ...

    def has_begun(self, status_file: str) -> bool:
        """Returns whether the disk has a trace of such a command."""
        ...

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
        """Runs a command until its end or its timeout; none of its processes is alive afterwards.

        ``on_output`` receives the output of both streams as it arrives. Raises ToolError.
        """
        ...


class StopReason(Enum):
    """Why a run is stopped from outside."""

    CANCELLED = "cancelled"
    WRAPPED_UP = "wrapped_up"
    """Before the first turn: later the loop ends itself, and reports."""
    FENCED = "fenced"


class StopSignal:
    """Stops one run; the first reason is kept, except that losing the lease overrides it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason: StopReason | None = None
        self.elapsed: Callable[[], float] | None = None
        """Set by the run: returns the seconds of its time that are used, which are stored with its lease."""
        self.message: Callable[[], None] = lambda: None
        """Set by the run: called when a message was sent to it."""

    @property
    def used(self) -> dict[str, int]:
        """Returns the time used, as an argument of the scripts that renew or release the lease; empty if not known."""
        return {"elapsed_ms": round(self.elapsed() * 1000)} if self.elapsed else {}

    def set(self, reason: StopReason) -> None:
        if self.reason is None or reason is StopReason.FENCED:
            self.reason = reason
        self._event.set()

    async def wait(self) -> StopReason:
        await self._event.wait()
        assert self.reason is not None
        return self.reason
