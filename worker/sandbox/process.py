"""A running sandbox: started on the event loop's thread, connected by pipes, and killed with all its processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from shared.errors import ErrorType, ToolError
from worker.linux.program import Program, Sink, piped
from worker.linux.tree import asked_to_end, children, close_all, command_line, descendants, open_descendants, tell
from worker.sandbox.priority import FIRST, LATER, LATER_SECONDS, lower

READY = b"ready\n"
GUARD = (
    "echo ready >&2; unset word; read -r word || exit 125; trap : HUP INT QUIT USR1 USR2 ALRM TERM; "
    '"$@"{streams}; code=$?; set -- /proc/[0-9]*; {left}exit $code'
)
"""The first shell in the sandbox: reports that the isolation is set up, then waits for a word before it runs anything.

By then everything in the sandbox dies with the worker. If the worker is killed earlier, no word arrives and nothing
runs: that is exit code 125. A command that signals its own process group reaches the guard, which ignores it.
After the command has ended it lists the processes left behind, after the word. The word is neither an argument nor a
variable, where commands could read it.
"""
_LEFT = (
    'if [ $# -gt 2 ]; then echo "$word" >&2; '
    'for p; do read -r name <$p/comm && echo "${p#/proc/} $name" >&2; done; fi; '
)
NO_INPUT = " </dev/null"
"""For commands without input: some programs read a pipe instead of searching files."""
MERGED = " 2>&1"
"""For commands whose stderr is merged into stdout."""
_PATIENCE = 5.0
MAX_REAPED = 20
GUARD_SHELL = "/.guard/sh"
"""Path of the guard's own copy of the shell in the sandbox."""
OURS = f"{GUARD_SHELL} -c echo ready"


def guard(*, quiet: bool, merged: bool = False) -> str:
    """Returns the guard's script; ``quiet`` commands get no input, ``merged`` ones write one stream."""
    return GUARD.format(streams=NO_INPUT * quiet + MERGED * merged, left=_LEFT)


def left_behind(stderr: bytes, word: str) -> tuple[bytes, list[str]]:
    """Splits stderr into the command's own output and the names of the processes left behind, listed by the guard."""
    said, found, names = stderr.rpartition(f"{word}\n".encode())
    if not found:
        return stderr, []
    listed = (line.partition(" ") for line in names.decode("utf-8", "replace").splitlines())
    return said, [name for pid, _, name in listed if pid not in ("1", "2") and name != "sh"]


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
        word: str = "go",
    ) -> None:
        self.failure: str | None = None
        """Why the isolation could not be set up and nothing was run; set before ``ended``."""
        self._said = b""
        self._started = False
        self._init: int | None = None
        self._init_pid = 0
        self._on_stderr = on_stderr
        queued = f"{word}\n".encode() + (stdin or b"")
        super().__init__(_begun(argv, fds), on_stdout, self._setup_output, queued, open_end=stdin is None, held=True)
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
        opening = asyncio.ensure_future(asyncio.to_thread(open_descendants, self._init_pid, fds))
        try:
            await asyncio.shield(opening)
            held, others = next(iter(fds.values()), None), list(fds.values())[1:]
            if held is not None and others:
                tell(held, signal.SIGSTOP)
                if await asked_to_end(others, grace):
                    tell(held, signal.SIGCONT)
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
            await asyncio.wait([self.ended], timeout=_PATIENCE)
        if not self.ended.done():
            raise ToolError(ErrorType.EXECUTION_FAILED, "the command cannot be ended; the kernel holds it")

    def kill(self) -> None:
        """Kills all processes in the sandbox; ``ended`` follows within milliseconds."""
        if self.ended.done():
            return
        if not self._started:
            self._stdin.drop()  # without the word the guard exits
        elif self._init is not None:
            self._note_living()
            signal.pidfd_send_signal(self._init, signal.SIGKILL)

    def kill_hard(self) -> None:
        """Kills bubblewrap and its child, which may wait for it, if ``kill`` did not end the sandbox."""
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def _setup_output(self, data: bytes) -> None:
        """Handles stderr before the command runs: the guard's ready line, or why the setup failed."""
        self._said += data
        before, word, after = self._said.partition(READY)
        if not word or (before and not before.endswith(b"\n")):
            return
        self._sinks = {fd: self._on_stderr if sink == self._setup_output else sink for fd, sink in self._sinks.items()}
        self._init_pid = next((init for bubblewrap in children(self._process.pid) for init in children(bubblewrap)), 0)
        with suppress(OSError):
            self._init = os.pidfd_open(self._init_pid)
            lower(self._init_pid, (), FIRST)  # includes the guard and its children
            self._loop.call_later(LATER_SECONDS, self._go_after_others)
        self._started = True
        self._stdin.begin()
        if after:
            self._on_stderr(after)

    def _go_after_others(self) -> None:
        if not self.ended.done():  # in a thread, because there may be many processes
            self._loop.run_in_executor(None, lower, self._init_pid, descendants(self._init_pid), LATER)

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

    def _note_living(self) -> None:
        """Records the processes in the sandbox, except the guard."""
        for pid in descendants(self._init_pid):
            line = command_line(pid)
            if line and not line.startswith(OURS):
                self.reaped.append(line)
            if len(self.reaped) >= MAX_REAPED:
                break

    def _finish(self) -> None:
        if self._init is not None:
            self._loop.remove_reader(self._init)
            with suppress(ChildProcessError):  # as pid 1 of a container the worker has to reap it
                os.waitid(os.P_PIDFD, self._init, os.WEXITED | os.WNOHANG)
            os.close(self._init)
            self._init = None
        self._close_pipes()
        if not self._started:
            self.failure = self._said.decode("utf-8", "replace").strip() or "it ended without a message"
        if not self.ended.done():
            self.ended.set_result(self._process.returncode)


def _begun(argv: Sequence[str], fds: Sequence[int]) -> subprocess.Popen[bytes]:
    # Only the worker handles the terminal's Ctrl-C.
    return piped(argv, fds, process_group=0, umask=0o022)
