"""A server process outside of the sandbox, as configured by the operator, which never outlives its worker.

A supervisor process of its own ends it and everything it has started when the worker dies, even if the worker is
killed. Processes that it leaves behind are killed at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ...shared.errors import Misconfigured
from ..linux.program import Program, Sink, piped
from . import subreaper as supervisor

_GRACE = 1.0
_PATIENCE = 5.0


class FreeProgram(Program):
    """A server process. Start it only from the loop's thread: the kernel has it killed when that thread ends.

    A program that cannot be started is reported on stderr. Raises ``Misconfigured`` if the supervisor cannot be
    started.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, on_stdout: Sink, on_stderr: Sink) -> None:
        self._name = argv[0]
        super().__init__(_supervised(supervisor.described(argv, env, cwd)), on_stdout, on_stderr, open_end=True)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._finish)

    async def end(self) -> None:
        """Ends the program and its descendants: SIGTERM first, then SIGKILL. Returns when all of them are gone."""
        stages = (signal.SIGTERM, _GRACE), (supervisor.END_ALL, _PATIENCE), (signal.SIGKILL, _PATIENCE)
        for number, seconds in stages:
            if self.ended.done():
                break
            if number == supervisor.END_ALL:
                self.reaped.append(self._name)
            self._tell_supervisor(number)
            await asyncio.wait([self.ended], timeout=seconds)

    def kill(self) -> None:
        """Kills the program and its descendants; ``ended`` follows within milliseconds."""
        if not self.ended.done():
            self._tell_supervisor(supervisor.END_ALL)

    def _tell_supervisor(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self._pidfd, number)

    def _finish(self) -> None:
        """The program has ended; the rest of its pipes is read, even if other processes still hold them."""
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._process.wait()
        self._close_pipes()
        if not self.ended.done():
            self.ended.set_result(self._process.returncode)


def _supervised(description: bytes) -> subprocess.Popen[bytes]:
    """Starts the supervisor process. Its environment is empty: the server's variables could change its behaviour."""
    fd = os.memfd_create("server")
    try:
        os.write(fd, description)
        os.lseek(fd, 0, os.SEEK_SET)
        return piped([sys.executable, "-I", "-S", supervisor.__file__, str(fd)], [fd], start_new_session=True)
    except OSError as error:
        raise Misconfigured(f"it cannot be started: {error.strerror}") from None
    finally:
        os.close(fd)
