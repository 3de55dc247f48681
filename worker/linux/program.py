"""A child process and its three pipes on the event loop: writing, reading with pauses, and draining at the end."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Sequence

_CHUNK = 256 * 1024
_LAST_CHUNKS = 64
"""Chunks read after the process has ended: more than a pipe holds, bounded in case others still write to it."""
Sink = Callable[[bytes], None]


class Stdin:
    """Owns the non-blocking descriptor. With ``held`` nothing is written before ``begin``."""

    def __init__(self, fd: int, queued: bytes = b"", *, open_end: bool, held: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._outgoing = bytearray(queued)
        self._open_end = open_end
        self._held = held

    @property
    def fd(self) -> int:
        return self._fd

    @property
    def queued(self) -> int:
        """Bytes that the program has not read yet."""
        return len(self._outgoing)

    def begin(self) -> None:
        self._held = False
        self._feed()

    def write(self, data: bytes) -> None:
        self._outgoing += data
        self._feed()

    def end(self) -> None:
        self._open_end = False
        self._feed()

    def drop(self) -> None:
        """Closes the pipe at once and drops queued bytes."""
        if self._fd >= 0:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _feed(self) -> None:
        if self._fd < 0 or self._held:
            return
        self._loop.remove_writer(self._fd)
        try:
            while self._outgoing:
                del self._outgoing[: os.write(self._fd, self._outgoing)]
        except BlockingIOError:
            self._loop.add_writer(self._fd, self._feed)
            return
        except BrokenPipeError:  # the program has closed its input
            self._outgoing.clear()
        if not self._open_end:
            self.drop()


class Program:
    """Owns the pipes of ``process``, which must have all three. ``ended`` is its exit code, set by subclasses."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        on_stdout: Sink,
        on_stderr: Sink,
        queued: bytes = b"",
        *,
        open_end: bool,
        held: bool = False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        self.reaped: list[str] = []
        """Names of the processes that were still running when it was killed."""
        self._process = process
        pipes = [pipe for pipe in (process.stdin, process.stdout, process.stderr) if pipe]
        stdin, *outputs = (os.dup(pipe.fileno()) for pipe in pipes)
        for pipe in pipes:
            pipe.close()
        self._sinks = dict(zip(outputs, (on_stdout, on_stderr), strict=True))
        for fd in (stdin, *outputs):
            os.set_blocking(fd, False)
        self._stdin = Stdin(stdin, queued, open_end=open_end, held=held)
        self._go_on()

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, data: bytes) -> None:
        """Queues bytes for its standard input, which must be open."""
        self._stdin.write(data)

    def close_stdin(self) -> None:
        self._stdin.end()

    def pause(self, seconds: float) -> None:
        """Stops reading for that long: a process that fills the pipe blocks meanwhile."""
        for fd in self._sinks:
            self._loop.remove_reader(fd)
        self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        if not self.ended.done():
            for fd in self._sinks:
                self._loop.add_reader(fd, self._read, fd)

    def _read(self, fd: int) -> bool:
        """Reads one chunk. Returns whether there was anything to read."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._sinks[fd](data)
        else:
            self._loop.remove_reader(fd)
        return bool(data)

    def _close_pipes(self) -> None:
        """Drains and closes the pipes after the process has ended."""
        self._stdin.drop()
        for fd in tuple(self._sinks):
            for _ in range(_LAST_CHUNKS):
                if not self._read(fd):
                    break
            self._loop.remove_reader(fd)
            os.close(fd)


def piped(
    argv: Sequence[str],
    fds: Sequence[int],
    *,
    process_group: int | None = None,
    start_new_session: bool = False,
    umask: int = -1,
) -> subprocess.Popen[bytes]:
    """Starts a program with three pipes and an empty environment; other arguments are as for ``Popen``."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env={},
        cwd="/",
        pass_fds=fds,
        process_group=process_group,
        start_new_session=start_new_session,
        umask=umask,
    )
