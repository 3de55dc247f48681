"""Readiness of a stack: its current start stage, and whether it makes progress."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .child import last_line
from .home import StackInfo, holder

TICK_SECONDS = 0.03
ANSWER_SECONDS = 2.0
NO_WORKER = "no worker is alive"
"""Start of the detail of ``/readyz`` if only workers are missing."""
CPU_SECONDS = 3.0
"""CPU seconds that count as progress; a stack that only waits uses less during the allowed stall."""


@dataclass(frozen=True)
class Stage:
    """One stage of a start, with the log that has the details."""

    waits_for: str
    log: str

    def description(self, home: Path) -> str:
        line = last_line(home / "logs" / self.log)
        return f"{self.waits_for} ({self.log}: {line})" if line else self.waits_for


SUPERVISOR = Stage("starting the stack's parent process", "supervisor.log")
REDIS = Stage("starting Redis", "redis.log")
API = Stage("starting the API", "api.log")
WORKER = Stage("starting the worker", "worker-1.log")


async def stage_of(info: StackInfo | None) -> Stage | None:
    """Returns the stage of a start, or None if ``/readyz`` reports Redis and a worker as ready."""
    if info is None:
        return SUPERVISOR
    status, detail = await _ask(info)
    if status == 200 or (info.workers == 0 and detail.startswith(NO_WORKER)):
        return None
    if status == 0:
        return API
    return WORKER if detail.startswith(NO_WORKER) else REDIS


async def until_ready(info: StackInfo, report: Callable[[str], None] | None = None) -> None:
    """Returns when the stack is ready. ``report`` receives the name of each stage."""
    last: Stage | None = None
    while (stage := await stage_of(info)) is not None:
        if report and stage is not last:
            report(f"{stage.waits_for} …")
            last = stage
        await asyncio.sleep(TICK_SECONDS)


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


class StartProgress:
    """Detects a stalled start: no new stage, no new line in a log, almost no CPU time."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._last: tuple[Stage | None, int] = (None, -1)
        self._cpu = 0.0
        self._since = time.monotonic()

    def stalled_seconds(self, stage: Stage) -> float:
        """Returns the seconds since the last progress."""
        current, cpu = (stage, _log_bytes(self._home / "logs")), _cpu_seconds(holder(self._home))
        if current != self._last or cpu - self._cpu > CPU_SECONDS:
            self._last, self._cpu, self._since = current, cpu, time.monotonic()
        return time.monotonic() - self._since


def _log_bytes(logs: Path) -> int:
    """Returns the bytes in all logs."""
    try:
        return sum(entry.stat().st_size for entry in logs.iterdir())
    except OSError:
        return 0


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
