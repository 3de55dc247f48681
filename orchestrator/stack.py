"""This machine's stack from its users' side: finds it, starts it on demand, and keeps it running while it is used.

Redis, workers and the API are children of one supervisor (orchestrator/supervisor.py). Two file locks, which the kernel
releases even when a process is killed, represent its users: the supervisor holds ``supervisor.lock``, every user has a
shared lock on ``users.lock``. The supervisor stops when it gets ``users.lock`` exclusively.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from pydantic import SecretStr

from ..shared.errors import Misconfigured, Unavailable
from ..shared.fleet import WorkerCard
from ..shared.settings import Settings
from .child import keep_last_logs, last_line
from .home import (
    INFO,
    NO_WRITES_TAKEN,
    REFUSED,
    SUPERVISOR_LOCK,
    USERS_LOCK,
    StackInfo,
    holder,
    is_full,
    no_space,
    open_private,
    prepare_home,
    read_info,
    try_lock,
    unusable,
)

TICK_SECONDS = 0.03
ANSWER_SECONDS = 2.0
NO_WORKER = "no worker is alive"
"""Start of the detail of ``/readyz`` if only workers are missing."""
ALL_DRAIN = "every worker is draining"
"""Start of it if all that are alive take no new work. Such a stack has started: what is submitted to it is queued."""
CPU_SECONDS = 3.0
"""CPU seconds that count as progress; a stack that only waits uses less during the allowed stall."""
STALLED_SECONDS = 60.0
"""Seconds without progress after which a start is given up."""
LONGEST = 10
"""Maximum duration of a start as a multiple of that: a program that is restarted in a loop writes logs, too."""
QUIET_SECONDS = 3.0
"""Seconds after which a start is reported to the user."""
OUTDATED_SECONDS = 30.0
"""Seconds that a worker may need to hand over its runs."""
FULL_SECONDS = 1.0
"""Seconds for which a start on a full disk is retried, in case space is freed."""
MODEL_SETTINGS = {"model", "model_endpoint"}
_ADDRESSES = {"home", "host", "port", "redis_url", "url", "token", "no_token", "local"}
OF_A_COMMAND = _ADDRESSES | {"concurrency", "queues", "log_level", "log_format", "temporary", "stack_since"}
"""Settings that say where a stack is or how it is started, not how it works."""

Report = Callable[[str], None]
"""Called with the stage of a start that takes long."""


def none_takes_work(workers: Sequence[WorkerCard]) -> str | None:
    """Returns why none of these workers takes new work, or None if one does."""
    if not workers:
        return f"{NO_WORKER}; start one with `deputize worker` or `deputize up`"
    drain = all(worker.draining for worker in workers)
    return f"{ALL_DRAIN}; start them again (`deputize stop`, then `deputize up`), or others" if drain else None


@dataclass(frozen=True)
class StackOptions:
    """The parts of a stack. Without workers it is read-only; the first user with work adds one."""

    workers: int = 1
    concurrency: int | None = None
    flower: bool = False
    stays: bool = False
    """Whether it runs until it is stopped, and not only while it has users."""


def running(settings: Settings) -> StackInfo | None:
    """Returns the running or starting stack of this home, or None. Raises Misconfigured."""
    try:
        with suppress(FileNotFoundError), open_private(settings.home / SUPERVISOR_LOCK, "rb") as lock:
            if not try_lock(lock, fcntl.LOCK_SH):
                return read_info(settings.home)
    except OSError as error:
        raise unusable(settings.home, error) from None
    return None


@dataclass(frozen=True)
class Stage:
    """One stage of a start, with the log that has the details."""

    waits_for: str
    log: str
    is_final: bool = False
    """Whether a command does not wait for it: ``waits_for`` is then why the stack cannot be used for now."""

    def description(self, home: Path) -> str:
        line = last_line(home / "logs" / self.log, without=("debug", "info"))  # no user can act upon these
        return f"{self.waits_for} ({self.log}: {line})" if line else self.waits_for


SUPERVISOR = Stage("starting the stack's parent process", "supervisor.log")
REDIS = Stage("starting Redis", "redis.log")
API = Stage("starting the API", "api.log")
WORKER = Stage("starting the worker", "worker-1.log")


async def stage_of(info: StackInfo | None) -> Stage | None:
    """Returns the stage of a start, or None if ``/readyz`` reports that Redis and a worker are alive.

    Where Redis refuses, the stage has the detail of ``/readyz``.
    """
    if info is None:
        return SUPERVISOR
    status, detail = await _ask(info)
    no_worker = detail.startswith(NO_WORKER)
    if status == 200 or detail.startswith(ALL_DRAIN) or (info.workers == 0 and no_worker):
        return None
    if detail.startswith((NO_WRITES_TAKEN, REFUSED)):
        return Stage(detail, REDIS.log, is_final=True)
    return API if status == 0 else WORKER if no_worker else REDIS


async def _ask(info: StackInfo) -> tuple[int, str]:
    """Returns the status (0 without a connection) and the problem's detail. An HTTP library is slower to import."""
    address = urlsplit(info.url)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            with closing(writer):
                writer.write(f"GET /readyz HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n".encode())
                answer = await reader.read(-1)
    except (OSError, TimeoutError):
        return 0, ""
    head, _, body = answer.partition(b"\r\n\r\n")
    with suppress(ValueError, IndexError, KeyError, TypeError):
        return int(head.split()[1]), str(json.loads(body).get("detail", ""))
    return 0, ""


@asynccontextmanager
async def stack_in_use(
    settings: Settings,
    *,
    workers: int = 1,
    concurrency: int | None = None,
    wait: float = STALLED_SECONDS,
    report: Report | None = None,
) -> AsyncGenerator[StackInfo]:
    """Yields a stack that is ready for work and stays for the block. Its first user decides its parts.

    Waits as long as its start makes progress. With 0 workers only its API must be ready. Raises Misconfigured if it
    cannot start here, Unavailable after ``wait`` seconds without progress.
    """
    home = settings.home
    prepare_home(home)
    waiting = StartMonitor(home, wait, report)
    async with AsyncExitStack() as held:
        try:
            users = held.enter_context(open_private(home / USERS_LOCK, "ab"))
            # A supervisor that stops holds this lock exclusively; after it, a new supervisor must be started.
            while not try_lock(users, fcntl.LOCK_SH):
                await waiting.pause(Stage("waiting for the last stack to stop", "supervisor.log"))
            if workers:
                await _let_outdated_stop(settings, users, waiting)
            info = await _ready(settings, StackOptions(workers, concurrency), waiting)
        except OSError as error:
            raise unusable(home, error) from None
        yield info


def already_runs(home: Path) -> Misconfigured:
    """Returns the refusal of a second stack of this home."""
    there, pid = read_info(home), holder(home)
    where = f" at {there.url}" if there else f" (process {pid})" if pid else ""
    choices = "use it, end it with `deputize stop`, or set another DEPUTIZE_HOME"
    return Misconfigured(f"a stack runs on this machine already{where}; {choices}")


async def start_detached(settings: Settings, wanted: StackOptions, report: Report) -> StackInfo:
    """Starts a stack that stays without a terminal, and returns it once it is ready for work.

    Raises as ``stack_in_use``, and Misconfigured where a stack runs already. A start that fails leaves nothing.
    """
    home = settings.home
    prepare_home(home)
    try:
        with open_private(home / SUPERVISOR_LOCK, "ab") as lock:
            if not try_lock(lock, fcntl.LOCK_EX):
                raise already_runs(home)
        return await _ready(settings, wanted, StartMonitor(home, report=report))
    except OSError as error:
        raise unusable(home, error) from None
    except (Unavailable, asyncio.CancelledError):
        ask_to_stop(home)
        raise


def ask_to_stop(home: Path) -> bool:
    """Asks the stack's parent process to stop all of it. Returns whether there is one."""
    pid = holder(home)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    return pid is not None


def setting_digests(settings: Settings) -> dict[str, str]:
    """Returns a digest of each setting that a stack's workers and its API use, which does not disclose it."""
    values = settings.model_dump(exclude=OF_A_COMMAND)
    return {name: hashlib.sha256(_text(value).encode()).hexdigest()[:16] for name, value in values.items()}


def other_settings(settings: Settings, info: StackInfo) -> list[str]:
    """Returns the names of the settings in which the stack differs from these.

    Of a stack that stays only those that are given here: its start may have been given more. The model counts
    where it or its endpoint is given here: a command without them uses the model of the stack.
    """
    has_key = any(name in settings.model_endpoint for table in settings.models.values() for name in table.variables)
    has_model = has_key or settings.has_model_endpoint or "model" in settings.model_fields_set
    here = setting_digests(settings)
    differing = [name for name, digest in info.settings.items() if here.get(name, digest) != digest]
    return [
        name
        for name in differing
        if (has_model if name in MODEL_SETTINGS else not info.stays or name in settings.model_fields_set)
    ]


def _text(value: object) -> str:
    def plain(each: object) -> object:
        return each.get_secret_value() if isinstance(each, SecretStr) else str(each)

    # A default of 15 for a float is 15.0 where it was passed as a variable.
    return json.dumps(json.loads(json.dumps(value, sort_keys=True, default=plain), parse_int=float))


async def _let_outdated_stop(settings: Settings, users: IO[bytes], waiting: StartMonitor) -> None:
    """Waits for the end of a stack that has no other users and runs with outdated settings."""
    info = running(settings)
    if info is None or info.stays or not other_settings(settings, info):
        return
    alone = try_lock(users, fcntl.LOCK_EX)
    fcntl.flock(users, fcntl.LOCK_UN)
    deadline = time.monotonic() + OUTDATED_SECONDS
    stage = Stage("waiting for a stack with other settings to stop", "supervisor.log")
    while alone and running(settings) == info and time.monotonic() < deadline:
        await waiting.pause(stage)
    while not try_lock(users, fcntl.LOCK_SH):
        await waiting.pause(stage)


async def _ready(settings: Settings, wanted: StackOptions, waiting: StartMonitor) -> StackInfo:
    home = settings.home
    started: subprocess.Popen[bytes] | None = None
    try:
        while True:
            if started is not None and started.poll() is not None:
                raise Misconfigured(f"this machine's stack did not start: {_final_error(home, started)}")
            # The lock is free: there is no supervisor, or the last one was killed. Several users may see that;
            # one gets the lock and passes it to the supervisor it starts, and the others find it held.
            with open_private(home / SUPERVISOR_LOCK, "ab") as lock:
                if try_lock(lock, fcntl.LOCK_EX):
                    started = _start_supervisor(settings, wanted, lock)
            info = read_info(home)
            stage = await stage_of(info)
            if info is not None and info.workers == 0 < wanted.workers and not (stage and stage.is_final):
                _ask_for_worker(home, info)
                stage = WORKER
            elif not wanted.workers and stage == WORKER:
                stage = None  # read-only users need none
            if info is not None and stage is None:
                return info
            await waiting.pause(stage)
    finally:
        if started is not None and started.stdout is not None:
            started.stdout.close()


def _ask_for_worker(home: Path, info: StackInfo) -> None:
    # Only a process that is known to be the supervisor: the description may be that of a killed one.
    if holder(home) == info.pid:
        with suppress(ProcessLookupError):
            os.kill(info.pid, signal.SIGUSR1)


class StartMonitor:
    """One user's wait for a start: gives up without progress, and reports the stage if it takes long.

    Progress is a new stage, a new line in a log, or CPU time: loading a large Redis logs nothing for minutes.
    """

    def __init__(self, home: Path, stalled: float = STALLED_SECONDS, report: Report | None = None) -> None:
        self._home = home
        self._stalled = stalled
        self._report = report
        self._began = self._progressed = time.monotonic()
        self._last: tuple[Stage | None, int] = (None, -1)
        self._cpu = 0.0
        self._reported = ""

    def stalled_seconds(self, stage: Stage) -> float:
        """Returns the seconds since the last progress."""
        logged = 0
        with suppress(OSError):
            logged = sum(entry.stat().st_size for entry in (self._home / "logs").iterdir())
        current, cpu = (stage, logged), _cpu_seconds(holder(self._home))
        if current != self._last or cpu - self._cpu > CPU_SECONDS:
            self._last, self._cpu, self._progressed = current, cpu, time.monotonic()
        return time.monotonic() - self._progressed

    async def pause(self, stage: Stage | None) -> None:
        """Waits a moment. Raises Unavailable with the stage if the start has stalled."""
        waited = time.monotonic() - self._began
        if stage is not None:
            if stage.is_final:
                raise Unavailable(stage.waits_for)
            if waited > FULL_SECONDS and is_full(self._home):
                raise Unavailable(no_space(self._home))
            if self.stalled_seconds(stage) > self._stalled or waited > LONGEST * self._stalled:
                pid = holder(self._home)
                who = f"; process {pid} holds {self._home / SUPERVISOR_LOCK}" if pid else ""
                logs = f"see {self._home / 'logs'}"
                what = stage.description(self._home)
                raise Unavailable(f"this machine's stack gets no further while {what}{who} ({logs})")
            if self._report and waited > QUIET_SECONDS and stage.waits_for != self._reported:
                self._reported = stage.waits_for
                self._report(stage.waits_for)
        await asyncio.sleep(TICK_SECONDS)


def _cpu_seconds(supervisor: int | None) -> float:
    """Returns the CPU seconds of the supervisor and its children; 0 if the system does not report them."""
    if supervisor is None:
        return 0.0
    ticks = 0
    with suppress(OSError, ValueError, IndexError):
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        for pid in [str(supervisor), *children]:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


_started: list[subprocess.Popen[bytes]] = []
"""Kept because a supervisor may outlive its first user: Python warns of a running process that is dropped."""


def _start_supervisor(settings: Settings, wanted: StackOptions, lock: IO[bytes]) -> subprocess.Popen[bytes]:
    """Returns the process, which holds the lock from now on. Its output is a pipe with its final error."""
    log = settings.home / "logs" / SUPERVISOR.log
    log.parent.mkdir(mode=0o700, exist_ok=True)
    settings.home.joinpath(INFO).unlink(missing_ok=True)  # of a supervisor that was killed
    keep_last_logs(settings.home)
    with open_private(log, "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "deputize.orchestrator.supervisor"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            env=settings.child_environment(),
            cwd=settings.home,
            pass_fds=[lock.fileno()],
            start_new_session=True,  # it outlives its first user, and that one's terminal
        )
    _started[:] = [process, *(each for each in _started if each.poll() is None)]
    given = {
        "workers": wanted.workers,
        "concurrency": wanted.concurrency,
        "flower": wanted.flower,
        "stays": wanted.stays,
        # The configured port, else a free one: for a command's own stack the default port only counts if it is set.
        "port": settings.port if wanted.stays or "port" in settings.model_fields_set else 0,
        "lock_fd": lock.fileno(),
        "endpoint": settings.endpoint_variables(),
    }
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(json.dumps(given).encode())
    return process


def _final_error(home: Path, process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    # A full disk cannot take a log line, a pipe can.
    error = process.stdout.read().decode("utf-8", "replace").strip() or last_line(home / "logs" / SUPERVISOR.log)
    return error or f"it logged nothing and ended with {process.returncode}"
