"""A child process of the supervisor: restarted when it exits, and killed when the supervisor ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Container, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..shared.background import Backoff
from ..shared.errors import Misconfigured
from ..shared.log import log
from ..shared.own_process import send_on_death_of_parent
from .home import is_full

TAIL_BYTES = 64 * 1024
MAX_LINE_CHARS = 300
EXIT_MISCONFIGURED = 3
FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 5.0
ROOM_SECONDS = 0.5
"""Seconds after which a full disk is looked at again."""
HEALTHY_SECONDS = 30.0
"""Seconds of running after which the restart delay is reset."""
EARLY_ENDS = 3
"""Exits before the stack was ready for the first time after which a program is given up."""
KILLED_SECONDS = 5.0
"""Seconds to wait for a killed program's exit. The kernel kills it with its parent in any case."""


def keep_last_logs(home: Path) -> None:
    """Renames the logs of the previous stack, also of programs that the next one lacks."""
    for log_file in home.glob("logs/*.log"):
        log_file.replace(log_file.with_suffix(".log.1"))


def last_line(log_file: Path, without: Container[str] = (), since: int = 0) -> str:
    """Returns the last message in a program's log, from byte ``since`` on, that has none of these levels, or "".

    Those of asyncio do not count if there is another one: what it finds when a program exits, such as a result that
    nothing has read, is not why it exits.
    """
    try:
        with log_file.open("rb") as file:
            file.seek(max(since, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            lines = file.read(TAIL_BYTES).decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    last = ""
    for line in reversed([line.strip() for line in lines if line.strip()]):
        level, logger, message = "", "", line
        with suppress(ValueError, TypeError, KeyError):  # our own programs write JSON
            written = json.loads(line)
            level, logger, message = (str(written[key]) for key in ("level", "logger", "message"))
        if level in without:
            continue
        last = last or message[:MAX_LINE_CHARS]
        if logger != "asyncio":
            return message[:MAX_LINE_CHARS]
    return last


def ended_because(code: int, log_file: Path, since: int) -> str:
    """Returns why a program ended with this code: the signal, or its last error, else the last line that it logged.

    What it logged before a signal is not why that was sent.
    """
    if code < 0:
        with suppress(ValueError):
            return f"by the signal {signal.Signals(-code).name}"
    last_error = last_line(log_file, ("debug", "info", "warning"), since)
    return last_error or last_line(log_file, since=since) or "it logged nothing"


@dataclass(frozen=True)
class ChildProgram:
    """A command to run. ``stop_seconds`` is its time between SIGTERM and SIGKILL."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    stop_seconds: float = 5.0
    pass_fds: Sequence[int] = ()
    needs_room: bool = False
    """Whether it ends on a full disk, so that it is not restarted before there is room."""
    umask: int = 0o077


class Child:
    """Use from the main thread only: the parent-death signal comes when the *thread* that forked ends."""

    def __init__(self, program: ChildProgram, home: Path) -> None:
        self.program = program
        self._home = home
        self._log = home / "logs" / f"{program.name}.log"
        self._log_began = 0
        """Size of the log when the process that runs was started."""
        self._process: asyncio.subprocess.Process | None = None
        self.was_ready = False
        """Whether the stack was ready once: from then on the program is restarted without limit."""
        self._stopping = asyncio.Event()

    def start(self) -> asyncio.Task[None]:
        """Returns the task that runs the program until ``stop``, and restarts it when it exits.

        It raises Misconfigured if another start cannot help, OSError if the program cannot be started.
        """
        self._running = asyncio.create_task(self._run(), name=self.program.name)
        return self._running

    async def _run(self) -> None:
        backoff, ends = Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS), 0
        while not self._stopping.is_set():
            started = time.monotonic()
            code = await self._run_once()
            if self._stopping.is_set():
                return
            ends += 1
            why = ended_because(code, self._log, self._log_began)
            if code == EXIT_MISCONFIGURED:
                raise Misconfigured(f"{why} (from {self._log})")
            if not self.was_ready and ends >= EARLY_ENDS:
                raise Misconfigured(f"{self.program.name} does not start (exit {code}): {why} (from {self._log})")
            if time.monotonic() - started > HEALTHY_SECONDS:
                backoff.reset()
            log.warning("%s ended with %s (%s); again in %.2f s", self.program.name, code, why, backoff.delay)
            await self._pause(backoff.next())
            while self.program.needs_room and self.was_ready and is_full(self._home) and not self._stopping.is_set():
                await self._pause(ROOM_SECONDS)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _run_once(self) -> int:
        with self._log.open("ab") as output:
            self._log_began = output.tell()
            self._process = await asyncio.create_subprocess_exec(
                *self.program.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(self.program.environment),
                # Not the caller's folder: Python, Celery and Flower load code and settings from the working directory.
                cwd=self._home,
                # Ctrl-C in the terminal must reach the supervisor only: it stops Redis last.
                process_group=0,
                pass_fds=self.program.pass_fds,
                umask=self.program.umask,
                preexec_fn=partial(_kill_with_parent, os.getpid()),
            )
        if self._stopping.is_set():  # stopped while it was being started
            self._signal(signal.SIGTERM)
        return await self._process.wait()

    async def stop(self) -> None:
        """Stops the program, and returns when its task has ended; only for a child that was started."""
        self._stopping.set()
        self._signal(signal.SIGTERM)
        if not (await asyncio.wait({self._running}, timeout=self.program.stop_seconds))[0]:
            log.warning("%s did not stop within %.0f s", self.program.name, self.program.stop_seconds)
            self.kill()
            await asyncio.wait({self._running}, timeout=KILLED_SECONDS)

    def kill(self) -> None:
        self._stopping.set()
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


@contextmanager
def hard_timeout(seconds: float) -> Generator[None]:
    """Ends this process if the block takes longer than so many seconds; the kernel ends its children with it."""
    timer = threading.Timer(seconds, os._exit, [1])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def python(module: str, *arguments: str) -> list[str]:
    """Returns the command that runs one of our modules, and none of that name in the working directory."""
    return [sys.executable, "-P", "-m", module, *arguments]


def _kill_with_parent(parent: int) -> None:
    """Between fork and exec: lets the kernel kill the child when its parent ends."""
    send_on_death_of_parent(signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the signal was set
        os._exit(1)
