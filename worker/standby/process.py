"""The worker's side of its standby: heartbeats, the held leases, and the renewals made by the standby."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any, Self

from ...shared.runs.keys import LEASES, record_key
from ...shared.runs.store import RENEW, STALLED
from ...shared.sentinel import SentinelAddress, is_of_sentinel
from ..linux.program import Stdin
from . import program

MIN_BOUND = 3.0
"""Minimum seconds beyond a lease without a heartbeat before the process is ended."""


class Standby:
    """The standby process of this worker. Created, used and closed on the event loop that it monitors."""

    def __init__(self, redis_url: str, lease_seconds: float) -> None:
        self.bound = lease_seconds + max(lease_seconds / 2, MIN_BOUND)
        """Seconds without a heartbeat after which the process is ended."""
        self.tick = min(lease_seconds / 10, 0.5)
        times = {"lease": lease_seconds, "bound": self.bound, "tick": self.tick}
        scripts = {"renew": RENEW.source, "stalled": STALLED.source, "leases": LEASES}
        address: dict[str, Any] = {"url": redis_url}
        if is_of_sentinel(redis_url):
            found = SentinelAddress.of(redis_url)
            address |= {"sentinels": found.hosts, "service": found.service, "options": found.options}
        self._settings = json.dumps({**address, "pid": os.getpid(), **times, **scripts})
        self._held: dict[str, tuple[str, int]] = {}
        self._lines = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._stdin: Stdin | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rest = b""

    async def __aenter__(self) -> Self:
        self._beat()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer:
            self._timer.cancel()
        process = self._drop()
        if process is not None:
            process.terminate()
            await asyncio.to_thread(process.wait)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def hold(self, id: str, fence: str) -> None:
        self._write_line(f"+ {id} {record_key(id)} {fence}")
        self._held[id] = (fence, self._lines)

    def drop(self, id: str) -> None:
        if self._held.pop(id, None):
            self._write_line(f"- {id}")

    def renewals(self) -> dict[tuple[str, str], float]:
        """Returns when the standby renewed leases: (id, fence) → send time. Each renewal is returned once."""
        found: dict[tuple[str, str], float] = {}
        *lines, self._rest = (self._rest + self._read()).split(b"\n")
        for line in lines:
            sent, received, lost = json.loads(line)
            for id, (fence, line_number) in self._held.items():
                if line_number <= received and id not in lost:
                    found[id, fence] = sent
        return found

    def _beat(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.tick, self._beat)
        if self._process is None or self._process.poll() is not None:
            self._start()
        elif self._stdin and not self._stdin.queued:
            self._write_line(".")

    def _start(self) -> None:
        """Starts it in a session of its own, so that a terminal's Ctrl-C does not reach it."""
        self._drop()
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, "-I", program.__file__],
            stdin=pipe,
            stdout=pipe,
            bufsize=0,
            env={},
            cwd="/",
            start_new_session=True,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._stdin = Stdin(os.dup(self._process.stdin.fileno()), open_end=True)
        self._process.stdin.close()
        for fd in (self._stdin.fd, self._process.stdout.fileno()):
            os.set_blocking(fd, False)
        self._rest, self._lines = b"", 0
        self._stdin.write(self._settings.encode() + b"\n")
        for id, (fence, _) in list(self._held.items()):
            self.hold(id, fence)

    def _drop(self) -> subprocess.Popen[bytes] | None:
        """Closes the pipes of the process, if there is one, and returns it."""
        if self._stdin:
            self._stdin.drop()
        process, self._process = self._process, None
        if process and process.stdout:
            process.stdout.close()
        return process

    def _write_line(self, line: str) -> None:
        self._lines += 1
        if self._stdin:
            self._stdin.write(line.encode() + b"\n")

    def _read(self) -> bytes:
        output = b""
        if self._process and self._process.stdout:
            with suppress(BlockingIOError):
                while data := os.read(self._process.stdout.fileno(), 1 << 16):
                    output += data
        return output
