"""Processes by fork from one that has imported what they need: the imports are most of the CPU time of a start.

The fork server of the standard library, one for each process of the tests. What it starts is a process of its own, with
the environment, descriptors and directory that it is given. What it does not show is a start from nothing: the tests of
the stack, of compose, of the installed wheel and of what each command imports start programs with ``exec``.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver, reduction
from pathlib import Path
from typing import Any

from tests.processes import leaks

COMMAND = str(Path(sys.executable).with_name("deputize"))
PROGRAMS = {COMMAND: "deputize.orchestrator.cli"}
"""Modules of programs that have another name than their module."""
WORKER = "deputize.worker.__main__"
POOL_WORKER = "tests.worker.celery_pool.pool_worker"
"""A worker with small tasks for tests of the pool."""
_COMMANDS = (
    *("batch", "doctor", "doctor_service", "follow_up", "live", "mcp", "policy", "pull", "reports", "run", "show"),
)
_PARTS_OF_CELERY = (
    *("app.amqp", "app.control", "app.events", "app.log", "backends.base", "fixups.django", "worker.autoscale"),
    *("worker.components", "worker.consumer", "worker.consumer.delayed_delivery", "worker.strategy"),
)
"""It imports them by their names when a worker starts."""
PRELOADED = [
    WORKER,
    "deputize.worker.parts.table",  # a worker imports it beside the self-test of its sandbox
    *("deputize.worker.models.anthropic", "deputize.worker.models.scripted"),
    *(f"celery.{name}" for name in _PARTS_OF_CELERY),
    *("kombu.transport.redis", "billiard.pool", "encodings.ascii"),
    *(f"deputize.orchestrator.cli.{name}" for name in _COMMANDS),
    *("deputize.orchestrator.orchestrator", "deputize.orchestrator.mcp.stdio"),
    "anyio._backends._asyncio",  # AnyIO imports it with the first call of a client
    "tests.processes.preloaded",
    "tests.processes.preloaded_encoding",
    "tests.system.counting_worker",
    "tests.system.stack_user",
    "tests.system.standing_worker",
    POOL_WORKER,
]

_context = multiprocessing.get_context("forkserver")


class Forked:
    """``main()`` of a module in a forked process; the part of ``subprocess.Popen`` that tests need."""

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
        stderr: int = subprocess.DEVNULL,
        cwd: Path | None = None,
        start_new_session: bool = False,
    ) -> None:
        _start_server()
        null = os.open(os.devnull, os.O_RDWR)
        streams = [_Descriptor(null if number == subprocess.DEVNULL else number) for number in (stdin, stdout, stderr)]
        folder = str(cwd or Path.cwd())
        try:
            start = _Start(program, list(arguments), dict(environment), streams, folder, start_new_session)
            self._process = _context.Process(target=start)
            self._process.start()
        finally:
            os.close(null)
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, or None while it runs; minus the signal's number if a signal ended it."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        assert self.returncode is not None, f"{self.pid} still runs after {timeout} s"
        return self.returncode

    async def ended(self) -> int:
        """Waits without holding the event loop up."""
        if self.returncode is None:
            loop, end = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(self._process.sentinel, end.set)
            try:
                await end.wait()
            finally:
                loop.remove_reader(self._process.sentinel)
        return self.wait()

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _start_server() -> None:
    """The server, its tracker of resources and its socket stay for later tests."""
    processes, files = leaks.descendants(), leaks.files()
    _context.set_forkserver_preload(PRELOADED)
    forkserver.ensure_running()
    leaks.servers.update(leaks.descendants() - processes)
    leaks.kept.update(leaks.files() - files)


class _Descriptor:
    """A file descriptor that is passed to the new process."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _received, (reduction.DupFd(self._number),)


def _received(descriptor: Any) -> int:
    return descriptor.detach()


@dataclass
class _Start:
    """What the new process does first: it becomes what ``exec`` would have made of it."""

    program: str
    arguments: list[str]
    environment: dict[str, str]
    streams: list[Any]
    cwd: str
    new_session: bool

    def __call__(self) -> None:
        if self.new_session:
            os.setsid()
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.cwd)
        time.tzset()
        tempfile.tempdir = None
        for number, descriptor in enumerate(self.streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stdin, sys.stdout, sys.stderr = (_stream(number) for number in range(3))
        sys.argv = [self.program, *self.arguments]
        module = importlib.import_module(PROGRAMS.get(self.program, self.program))
        raise SystemExit(module.main())


def _stream(number: int) -> Any:
    """A standard stream as the interpreter opens it when it starts."""
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    errors = "backslashreplace" if number == 2 else "strict"
    raw = io.FileIO(number, "w" if number else "r", closefd=False)
    raw.name = ("<stdin>", "<stdout>", "<stderr>")[number]
    buffer = io.BufferedWriter(raw) if number else io.BufferedReader(raw)
    lines = number == 2 or os.isatty(number)
    return io.TextIOWrapper(buffer, encoding, errors, line_buffering=lines)
