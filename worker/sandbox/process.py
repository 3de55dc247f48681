"""A running sandbox: started on the event loop's thread, connected by pipes, and killed with all its processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...shared.errors import ErrorType, ToolError
from ..linux.program import Program, Sink, piped
from ..linux.tree import (
    MAX_LINE,
    asked_to_end,
    children,
    close_all,
    command_line,
    descendants,
    open_descendants,
    send_signal,
)

READY = b"ready\n"
GUARD = (
    "echo ready >&2; unset word; read -r word || exit 125; trap : HUP INT QUIT USR1 USR2 ALRM TERM; "
    '"$@"{streams}; code=$?; set -- /proc/[0-9]*; [ $# -gt 2 ] || shift $#; '
    'for p in /tmp/* /tmp/.[!.]*; do [ -e "$p" ] && set -- "$@" "$p" && [ $# -gt 50 ] && break; done; '
    'if [ $# -gt 0 ]; then echo "$word" >&2; for p; do case $p in /tmp/*) echo "/ ${{p#/tmp/}}" >&2;; '
    '*) read -r name <$p/comm && echo "${{p#/proc/}} $name" >&2;; esac; done; fi; exit $code'
)
"""The first shell in the sandbox: reports that the isolation is set up, then waits for a nonce before it runs anything.

By then everything in the sandbox dies with the worker. If the worker is killed earlier, no nonce arrives and the guard
exits with 125 without running the command. The guard ignores signals that a command sends to its own process group.
After the command has ended it lists the processes and the files in /tmp that are left behind, after the nonce. The
nonce is neither an argument nor an exported variable, where commands could read it.
"""
_KILL_SECONDS = 5.0
MAX_REAPED = 20
GUARD_SHELL = "/.guard/sh"
"""Path of the guard's own copy of the shell in the sandbox."""
GUARD_COMMAND_LINE = f"{GUARD_SHELL} -c echo ready"
SHELL_SCRIPTS = {"bash": 'eval "$(</dev/fd/{0})" {0}<&-', "sh": ". /dev/fd/{0}"}
"""How a shell executes the command line that a descriptor holds. From bash no command inherits that."""
SHELL_COMMAND_LINES = ("bash --noprofile --norc -c eval ", "sh -c . /dev/fd/")
NICENESS = 5
"""Niceness at the start, relative to the worker."""
LONG_RUNNING_NICENESS = 15
"""Niceness after ``LONG_RUNNING_SECONDS``: a tenth of the CPU share of a new command."""
LONG_RUNNING_SECONDS = 1.0


def guard(*, quiet: bool, merged: bool = False) -> str:
    """Returns the guard's script; ``quiet`` commands get no input, ``merged`` ones write stderr into stdout.

    Without input, some programs would read a pipe instead of searching files.
    """
    return GUARD.format(streams=" </dev/null" * quiet + " 2>&1" * merged)


class Leftovers(NamedTuple):
    """The command's own stderr, and the names of the processes and of the files in /tmp that it left behind."""

    stderr: bytes
    processes: list[str]
    files: list[str]


def split_leftovers(stderr: bytes, nonce: str) -> Leftovers:
    """Splits the guard's list from the command's own output."""
    output, found, names = stderr.rpartition(f"{nonce}\n".encode())
    if not found:
        return Leftovers(stderr, [], [])
    entries = [line.partition(" ") for line in names.decode("utf-8", "replace").splitlines()]
    processes = [name for pid, _, name in entries if pid not in ("1", "2", "/") and name != "sh"]
    return Leftovers(output, processes, [name for pid, _, name in entries if pid == "/"])


class Process(Program):
    """A running sandbox. ``ended`` is its exit code, set when no process of the sandbox is alive.

    The command line must run ``GUARD``. Its standard input stays open if ``stdin`` is None. Start it only from the
    loop's thread: the kernel kills the sandbox when that thread ends.
    """

    def __init__(
        self,
        argv: Sequence[str],
        fds: Sequence[int],
        stdin: bytes | None,
        on_stdout: Sink,
        on_stderr: Sink,
        nonce: str = "go",
        refusal: Callable[[int], str | None] = lambda init: None,
    ) -> None:
        """``refusal`` returns why nothing may run in the sandbox of this process, once it is set up, or None."""
        self.failure: str | None = None
        """Why the isolation could not be set up and nothing was run; set before ``ended``."""
        self.script = ""
        self.keeps_priority = False
        """The command line that a shell in it executes, if there is one."""
        self._setup_stderr = b""
        self._started = False
        self._init: int | None = None
        self.init_pid = 0
        """The first process in the sandbox; 0 until the isolation is set up."""
        self._on_stderr = on_stderr
        self._refusal = refusal
        queued = f"{nonce}\n".encode() + (stdin or b"")
        bubblewrap = piped(argv, fds, process_group=0, umask=0o022)  # only the worker handles the terminal's Ctrl-C
        super().__init__(bubblewrap, on_stdout, self._setup_output, queued, open_end=stdin is None, held=True)
        self._outer = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._outer, self._outer_ended)

    async def terminate(self, grace: float) -> None:
        """Sends SIGTERM to all processes of the command, and SIGKILL after ``grace`` seconds.

        The guard is stopped meanwhile: it would end the sandbox with the command, before the other processes have
        finished. Raises as ``end`` does.
        """
        if self._init is not None:
            await self._ask_to_end(grace)
        await self.end()

    async def _ask_to_end(self, grace: float) -> None:
        fds = dict[int, int]()
        opening = asyncio.ensure_future(asyncio.to_thread(open_descendants, self.init_pid, fds))
        try:
            await asyncio.shield(opening)
            first, *others = [*fds.values()] or [-1]
            if others:
                send_signal(first, signal.SIGSTOP)
                if await asked_to_end(others, grace):
                    send_signal(first, signal.SIGCONT)
                    await asyncio.wait([self.ended], timeout=grace)
        finally:
            opening.add_done_callback(lambda _: close_all(fds))

    async def end(self) -> None:
        """Kills the remaining processes and waits for them, even if cancelled, with a time limit.

        Raises ToolError(EXECUTION_FAILED) if they do not end.
        """
        for kill in (self.kill, self.kill_hard):
            if self.ended.done():
                return
            kill()
            await asyncio.wait([self.ended], timeout=_KILL_SECONDS)
        if not self.ended.done():
            raise ToolError(ErrorType.EXECUTION_FAILED, "the command cannot be ended; the kernel holds it")

    def kill(self) -> None:
        """Kills all processes in the sandbox; ``ended`` follows within milliseconds."""
        if self.ended.done():
            return
        if not self._started:
            self._stdin.drop()  # without the nonce the guard exits
        elif self._init is not None:
            self._record_reaped()
            signal.pidfd_send_signal(self._init, signal.SIGKILL)

    def kill_hard(self) -> None:
        """Kills bubblewrap and its child, which may wait for it, if ``kill`` did not end the sandbox."""
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def _setup_output(self, data: bytes) -> None:
        """Handles stderr before the command runs: the guard's ready line, or why the setup failed."""
        self._setup_stderr += data
        before, nonce, after = self._setup_stderr.partition(READY)
        if not nonce or (before and not before.endswith(b"\n")):
            return
        self.init_pid = next((init for bubblewrap in children(self._process.pid) for init in children(bubblewrap)), 0)
        if reason := self._refusal(self.init_pid):
            self._setup_stderr = reason.encode("utf-8", "replace")
            self._stdin.drop()  # without the nonce the guard exits
            return
        self._sinks = {fd: self._on_stderr if sink == self._setup_output else sink for fd, sink in self._sinks.items()}
        with suppress(OSError):
            self._init = os.pidfd_open(self.init_pid)
            set_niceness(self.init_pid, (), NICENESS)  # includes the guard and its children
            self._loop.call_later(LONG_RUNNING_SECONDS, self._lower_priority)
        self._started = True
        self._stdin.begin()
        if after:
            self._on_stderr(after)

    def _lower_priority(self) -> None:
        if not (self.keeps_priority or self.ended.done()):  # in a thread, because there may be many processes
            processes = descendants(self.init_pid)
            self._loop.run_in_executor(None, set_niceness, self.init_pid, processes, LONG_RUNNING_NICENESS)

    def _outer_ended(self) -> None:
        """Bubblewrap reports its first command's end while daemons may still run: their pid 1 is killed, too."""
        self._loop.remove_reader(self._outer)
        os.close(self._outer)
        self._process.wait()
        if self._init is None:
            self._finish()
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._init, signal.SIGKILL)
        self._loop.add_reader(self._init, self._finish)

    def _record_reaped(self) -> None:
        """Records the processes in the sandbox, except the guard, and the command's shell unless it is alone."""
        shell: list[str] = []
        for pid in descendants(self.init_pid):
            line = command_line(pid)
            if line is None or line.startswith(GUARD_COMMAND_LINE):
                continue
            if not line or line.startswith(SHELL_COMMAND_LINES):  # a shell starts programs by exec
                shell = [self.script[:MAX_LINE]]
            else:
                self.reaped.append(line)
            if len(self.reaped) >= MAX_REAPED:
                break
        self.reaped = self.reaped or shell

    def _finish(self) -> None:
        if self._init is not None:
            self._loop.remove_reader(self._init)
            with suppress(ChildProcessError):  # as pid 1 of a container the worker has to reap it
                os.waitid(os.P_PIDFD, self._init, os.WEXITED | os.WNOHANG)
            os.close(self._init)
            self._init = None
        self._close_pipes()
        if not self._started:
            self.failure = self._setup_stderr.decode("utf-8", "replace").strip() or "it ended without a message"
        if not self.ended.done():
            self.ended.set_result(self._process.returncode)


def set_niceness(session: int, processes: Iterable[int], niceness: int) -> None:
    """Sets the niceness of these processes and their future children, relative to the worker. ``session`` is the
    leader of their session.

    It is set for process groups, because for a process it applies to the first thread only, and for the session if
    the kernel schedules by session (autogroup), which ignores the niceness of processes of other sessions.
    """
    niceness = min(os.getpriority(os.PRIO_PROCESS, os.getpid()) + niceness, 19)
    groups: set[int] = set()
    for process in (session, *processes):
        with suppress(OSError):  # the process has ended
            group = os.getpgid(process)
            if group not in groups:
                os.setpriority(os.PRIO_PGRP, group, niceness)
                groups.add(group)
    with suppress(OSError):  # the kernel has no autogroups, or permits it only for root
        Path(f"/proc/{session}/autogroup").write_text(str(niceness), "ascii")
