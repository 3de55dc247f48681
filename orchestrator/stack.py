"""This machine's own stack, from its users' side: find it, start it when there is none, hold it while it is used.

Redis, workers and the API are children of one keeper (orchestrator/keeper.py). Two locked files say who is there, and
the kernel lets go of them even when a process is killed: the keeper holds ``keeper.lock``, every user shares
``users.lock``. The keeper stops when it can have ``users.lock`` for itself.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from orchestrator.child import keep_last_log, last_line
from shared.errors import Misconfigured, Unavailable
from shared.settings import Settings

READY_SECONDS = 15.0
TICK_SECONDS = 0.03
ANSWER_SECONDS = 2.0


@dataclass(frozen=True)
class StackInfo:
    """What a running stack says of itself in ``stack.json``, which only its user can read."""

    pid: int
    url: str
    token: str
    """Empty where the API asks for none."""
    redis_url: str
    flower_url: str | None
    workers: int


@dataclass(frozen=True)
class Wanted:
    """What a stack is to be made of."""

    workers: int = 1
    concurrency: int | None = None
    flower: bool = False

    @property
    def arguments(self) -> list[str]:
        concurrency = [] if self.concurrency is None else ["--concurrency", str(self.concurrency)]
        return ["--workers", str(self.workers), *concurrency, *(["--flower"] if self.flower else [])]


def running(settings: Settings) -> StackInfo | None:
    """The stack that lives in this home now, started or starting; None when there is none."""
    with suppress(FileNotFoundError), _opened(settings.home / "keeper.lock", "rb") as lock:
        if not try_lock(lock, fcntl.LOCK_SH):
            return read_info(settings.home)
    return None


@asynccontextmanager
async def stack_in_use(
    settings: Settings, *, workers: int = 1, concurrency: int | None = None, wait: float = READY_SECONDS
) -> AsyncGenerator[StackInfo]:
    """A stack that is ready for work and stays for the block. What it is made of, its first user says.

    Raises Misconfigured when it cannot start here, Unavailable when it is not ready within ``wait`` seconds.
    """
    home = settings.home
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    deadline = time.monotonic() + wait
    with _opened(home / "users.lock", "ab") as users:
        # A keeper on its way out holds this one alone; after it, a new keeper is to be started.
        while not try_lock(users, fcntl.LOCK_SH):
            await _pause(home, deadline)
        yield await _ready(settings, Wanted(workers, concurrency), deadline)


async def _ready(settings: Settings, wanted: Wanted, deadline: float) -> StackInfo:
    home = settings.home
    started: subprocess.Popen[bytes] | None = None
    while True:
        if started is not None and started.poll() is not None:
            raise Misconfigured(f"this machine's stack did not start: {last_line(_log(home))}")
        # Nobody holds the lock: there is no keeper, or the last one was killed. Several users may see that;
        # one gets the lock, hands it to the keeper it starts, and the others find it held.
        with _opened(home / "keeper.lock", "ab") as lock:
            if try_lock(lock, fcntl.LOCK_EX):
                started = _start_keeper(settings, wanted, lock)
        info = read_info(home)
        if info is not None and await _is_ready(info):
            return info
        await _pause(home, deadline)


def _start_keeper(settings: Settings, wanted: Wanted, lock: IO[bytes]) -> subprocess.Popen[bytes]:
    (home := settings.home).joinpath("logs").mkdir(mode=0o700, exist_ok=True)
    home.joinpath("stack.json").unlink(missing_ok=True)  # of a keeper that was killed
    keep_last_log(_log(home))
    # The address that was asked for, else a free port: nobody asks for the default one by saying nothing.
    port = settings.port if "port" in settings.model_fields_set else 0
    arguments = [*wanted.arguments, "--port", str(port), "--lock-fd", str(lock.fileno())]
    with _log(home).open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrator.keeper", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=settings.child_environment(),
            cwd=home,
            pass_fds=[lock.fileno()],
            start_new_session=True,  # it outlives its first user, and that one's terminal
        )


async def until_ready(info: StackInfo) -> None:
    while not await _is_ready(info):  # noqa: ASYNC110 - another process becomes ready, no event tells
        await asyncio.sleep(TICK_SECONDS)


async def _is_ready(info: StackInfo) -> bool:
    """Asks ``/readyz``: Redis answers and a worker is there. By hand, because an HTTP library would load longer."""
    address = urlsplit(info.url)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            with closing(writer):
                writer.write(f"GET /readyz HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n".encode())
                status = await reader.readline()
    except (OSError, TimeoutError):
        return False
    return b" 200 " in status


async def _pause(home: Path, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise Unavailable(f"this machine's stack is not ready in time; {last_line(_log(home))} (see {home / 'logs'})")
    await asyncio.sleep(TICK_SECONDS)


def _log(home: Path) -> Path:
    return home / "logs" / "keeper.log"


def try_lock(file: IO[bytes], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _opened(path: Path, mode: str) -> Generator[IO[bytes]]:
    """A file whose lock is gone with the block. Not inherited by programs that are started meanwhile."""
    with open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        yield file


def read_info(home: Path) -> StackInfo | None:
    try:
        return StackInfo(**json.loads((home / "stack.json").read_text("utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write_info(home: Path, info: StackInfo) -> None:
    """All of it or nothing, and never readable for others: it holds the token."""
    new = home / "stack.json.new"
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(info), file)
    new.replace(home / "stack.json")
