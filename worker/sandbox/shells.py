"""Background shells: commands that run while the model does other things, until they or their run end.

They belong to one run's sandbox. ``bash`` starts them, ``bash_output`` reads them, ``bash_kill`` ends them.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import compress
from pathlib import Path

from ...shared.errors import ErrorType, ToolError
from ...shared.log import log
from ...shared.text import clip, terminal_text
from ...shared.wire import now
from ..contracts import Command, Shell, ShellOutput, ShellStatus
from ..threads import run_in_thread
from .buffers import BoundedBuffer, HiddenLines, LineFilter, OutputBuffer, incomplete_utf8_length
from .command import dropped
from .process import Process, Sink

MAX_SHELLS = 8
"""Shells per run that are running or have unread output."""
GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL."""
_PAUSE_SECONDS = 0.02
"""Pause in reading after each chunk that overflows the buffer, so that a flood does not occupy the worker."""
_ID = re.compile(r"[0-9a-f]{8}")

Start = Callable[[Command, Sink, Sink], Awaitable[Process]]


@dataclass(slots=True, eq=False)
class BackgroundShell:
    """One background command."""

    bash_id: str
    command: str
    process: Process
    start_time: datetime = field(default_factory=now)
    unread: OutputBuffer = field(default_factory=OutputBuffer)
    """Receives the command's output."""
    guard_stderr: BoundedBuffer = field(default_factory=lambda: BoundedBuffer(64 * 1024))
    """Receives the sandbox's own standard error."""
    hidden: HiddenLines = field(default_factory=HiddenLines)
    """Lines hidden by filters."""
    killed: bool = False
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def running(self) -> bool:
        return not self.process.ended.done()

    @property
    def exit_code(self) -> int | None:
        return None if self.running else self.process.ended.result()

    @property
    def status(self) -> ShellStatus:
        if self.running:
            return ShellStatus.RUNNING
        if self.killed:
            return ShellStatus.TERMINATED
        if self.failure:
            return ShellStatus.ERROR
        return ShellStatus.FAILED if self.exit_code else ShellStatus.COMPLETED

    @property
    def failure(self) -> str | None:
        """Why it could not be started, if so."""
        return self.process.failure

    @property
    def hides_lines(self) -> bool:
        """Whether a filter has hidden lines that are still unread."""
        return bool(self.hidden.lines)

    async def wait_for_output(self, seconds: float) -> None:
        """Waits until it prints something or ends, or for ``seconds``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.unread.arrived.wait()

    async def read(self, pattern: str | None = None) -> ShellOutput:
        """Returns the output since the last read; with a pattern only the matching lines.

        Lines hidden by a pattern stay unread for the next read with another pattern or none. An incomplete line is
        kept until its end arrives. Raises ToolError for an invalid or too slow pattern; then nothing counts as read.
        """
        async with self._reading:
            line_filter = None if pattern is None else await run_in_thread(LineFilter, pattern)
            status, exit_code = self.status, self.exit_code
            data = self.unread.take()
            end = len(data)
            if status is ShellStatus.RUNNING:
                end = data.rfind(b"\n") + 1 if line_filter else end - incomplete_utf8_length(data)
            is_same = pattern is not None and pattern == self.hidden.pattern
            kept, earlier = (self.hidden.lines, []) if is_same else ([], self.hidden.lines)
            try:
                text = await run_in_thread(terminal_text, data[:end].decode("utf-8", "replace"))
                lines = [*earlier, *(text.removesuffix("\n").split("\n") if end else [])]
                matches = await run_in_thread(line_filter.matches, lines) if line_filter else [True] * len(lines)
            except BaseException:
                self.unread.put_back(data)
                self.unread.arrived.set()
                raise
            self.unread.put_back(data[end:])
            if status is not ShellStatus.RUNNING:
                self.unread.arrived.set()  # no more output can come
            shown = [*compress(lines, matches)]
            hidden = [line for line, match in zip(lines, matches, strict=True) if not match]
            self.hidden.replace([*kept, *hidden], pattern)
            lost, self.unread.lost = self.unread.lost, 0
            lost_lines = 0
            if pattern is None:
                lost_lines, self.hidden.lost = self.hidden.lost, 0
        text = "\n".join(shown)
        return ShellOutput(text, len(lines), len(shown), lost, status, exit_code, len(earlier), lost_lines)

    async def stop(self, grace: float = GRACE_SECONDS) -> None:
        """Sends SIGTERM to all its processes, and SIGKILL after ``grace`` seconds. Returns when all have ended.

        Raises ToolError if it cannot be ended.
        """
        if not self.running:
            return
        self.killed = True
        await self.process.terminate(grace)


class BackgroundShellManager:
    """The shells of one run, by id.

    ``start`` starts a command. ``on_end`` is called with the process and its guard's stderr when a shell ends other
    than by ``bash_kill``. ``status_folder`` is a directory where ids outlive this worker, so that a later attempt knows
    which shells were lost.
    """

    def __init__(
        self, start: Start, on_end: Callable[[Process, bytes], object] | None = None, status_folder: Path | None = None
    ) -> None:
        self._start = start
        self._on_end = on_end
        self._status_folder = status_folder
        self._shells: dict[str, BackgroundShell] = {}
        self._removed: dict[str, ShellStatus] = {}

    def __iter__(self) -> Iterator[BackgroundShell]:
        return iter([*self._shells.values()])

    async def start(self, line: str, command: Command) -> BackgroundShell:
        """Starts a command, displayed as ``line``, with merged streams, and does not wait for it.

        ``command.timeout`` is ignored: it may run as long as its run. Raises ToolError: LIMIT_REACHED for too many
        shells, others if commands cannot be run.
        """
        held = [shell for shell in self if shell.running or not shell.unread.empty]
        if len(held) >= MAX_SHELLS:
            raise ToolError(
                ErrorType.LIMIT_REACHED,
                f"there may be {MAX_SHELLS} background shells at once. {_listed(held)} "
                "End one with bash_kill, or read one that has ended with bash_output.",
            )
        unread = OutputBuffer()
        guard_stderr = BoundedBuffer(64 * 1024)

        def on_stdout(data: bytes) -> None:
            unread.add(data)
            if unread.full:
                process.pause(_PAUSE_SECONDS)

        process = await self._start(replace(command, timeout=None, merged=True), on_stdout, guard_stderr.add)
        while (bash_id := uuid.uuid4().hex[:8]) in self._shells or bash_id in self._removed:
            pass
        shell = BackgroundShell(bash_id, line, process, unread=unread, guard_stderr=guard_stderr)
        self.add(shell)
        self.start_monitor(bash_id)
        return shell

    def add(self, shell: BackgroundShell) -> None:
        self._shells[shell.bash_id] = shell
        if status_file := self._status_file(shell.bash_id):
            with suppress(OSError):  # a later attempt can do without it
                status_file.touch(0o600)

    def start_monitor(self, bash_id: str) -> None:
        """Registers a callback for its end. The event loop reads and watches; no task is needed."""
        shell = self._shells[bash_id]

        def on_ended(_: object) -> None:
            shell.unread.arrived.set()
            if self._on_end and not shell.killed:
                self._on_end(shell.process, shell.guard_stderr.data)

        shell.process.ended.add_done_callback(on_ended)

    def lookup(self, bash_id: str) -> BackgroundShell:
        """Returns the shell of that id. Raises ToolError with its fate, or with the known ids."""
        if shell := self._shells.get(bash_id):
            return shell
        if (status_file := self._status_file(bash_id)) and status_file.exists():
            message = (
                f"background shell {bash_id} ended when the run was interrupted, and its unread output with it. "
                "Look at the workspace, then start it again with bash and run_in_background true."
            )
        elif status := self._removed.get(bash_id):
            message = f"background shell {bash_id} is gone: bash_kill ended it ({status}). {_listed(self)}"
        else:
            message = f"there is no background shell {clip(bash_id, 40)!r}. {_listed(self)}"
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, message)

    def remove(self, bash_id: str) -> None:
        """Removes a shell that has ended, with its output."""
        if shell := self._shells.pop(bash_id, None):
            self._removed[bash_id] = shell.status
            if status_file := self._status_file(bash_id):
                status_file.unlink(missing_ok=True)

    async def end(self) -> None:
        """Kills all running shells and waits for them, at the end of the run."""
        ends = await asyncio.gather(*(shell.process.end() for shell in self), return_exceptions=True)
        for error in ends:
            if error is not None:
                log.error("a background shell outlives its run: %s", error)

    def _status_file(self, bash_id: str) -> Path | None:
        return self._status_folder / f"shell-{bash_id}" if self._status_folder and _ID.fullmatch(bash_id) else None


def _listed(shells: Iterable[BackgroundShell]) -> str:
    listed = ", ".join(
        f"{shell.bash_id} ({shell.status}: {clip(' '.join(shell.command.split()), 60)})" for shell in shells
    )
    return f"There are: {listed}." if listed else "There are none; start one with bash and run_in_background true."


def format_shell_output(shell: Shell, output: ShellOutput) -> str:
    """Returns the new output of a background shell, and its status."""
    parts = [output.text] if output.shown else ["(no line matches the filter)" if output.lines else "(no new output)"]
    if output.shown < output.lines:
        unread = "read without a filter to get the others"
        parts.append(f"[{output.shown} of {output.lines} unread lines match the filter; {unread}]")
    elif output.earlier:
        first = f"the first {output.earlier} lines" if output.earlier > 1 else "the first line"
        parts.append(f"[{first} had been hidden by a filter before]")
    if output.lost_lines:
        parts.append(f"[{output.lost_lines} older filtered lines exceeded the buffer and were dropped]")
    if output.lost_bytes:
        parts.append(dropped(output.lost_bytes))
    if output.status is ShellStatus.ERROR:
        parts.append(f"It could not be started: {shell.failure}")
    code = "" if output.exit_code is None else f", exit code: {output.exit_code}"
    return "\n".join([*parts, f"[bash_id: {shell.bash_id}, status: {output.status}{code}]"])
