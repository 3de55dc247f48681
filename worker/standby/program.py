"""The standby as a program. Nothing of this project is imported here; see the package's docstring for what it does.

In: one line of JSON (the settings), then lines: ``.`` is a beat, ``+ id key fence`` and ``- id`` say what is held; each
is a sign of life. Out: a line of JSON for each renewal: when it was sent, how many lines had come before, and the ids
whose lease is another's.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_PR_SET_DUMPABLE = 4
_CHUNK = 1 << 16
_GRACE_SECONDS = 2.0
_TRIES = 20
"""To say which runs were stalled, a second apart: after that their leases have lapsed anyway."""


def _attempt(work: Callable[[], None]) -> bool:
    """Redis may be away, or its client not importable just now: another attempt follows."""
    try:
        work()
    except Exception:  # noqa: BLE001 - nothing but the end of the worker may end its standby
        return False
    return True


class Standby:
    """What the worker said, and how long it has been silent."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.worker: int = told["pid"]
        self.tick: float = told["tick"]
        self._told = told
        self._held: dict[str, tuple[str, str]] = {}
        self._lines = 0
        self._renewed = 0.0
        self._silent = 0.0
        self._looked = time.monotonic()
        self._rest = b""
        self._redis: Any = None

    def hear(self, data: bytes) -> None:
        """Takes what came from the worker."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._silent = 0.0
            self._lines += 1
            match line.decode().split(" "):
                case ["+", id, key, fence]:
                    self._held[id] = (key, fence)
                case ["-", id]:
                    self._held.pop(id, None)
                case _:
                    pass

    def watch(self) -> bool:
        """Renews where the worker does not. False where it is silent for too long."""
        now = time.monotonic()
        # Where this process itself got no time, the silence says nothing of the worker.
        self._silent += min(now - self._looked, 2 * self.tick)
        self._looked = now
        if is_stopped(self.worker):
            self._silent = 0.0
        third = self._told["lease"] / 3
        if self._held and self._silent >= third and now - self._renewed >= third:
            _attempt(self._renew)
        return self._silent < self._told["bound"]

    def _renew(self) -> None:
        sent, held = time.monotonic(), list(self._held.items())
        keys = [self._told["leases"], *(key for _, (key, _) in held)]
        runs = [{"id": id, "fence": fence} for id, (_, fence) in held]
        arguments = {"lease_ms": int(self._told["lease"] * 1000), "runs": runs}
        answers = self._client().eval(self._told["renew"], len(keys), *keys, json.dumps(arguments))
        self._renewed = sent
        lost = [id for (id, _), answer in zip(held, answers, strict=True) if answer == b"fenced"]
        with suppress(BlockingIOError):
            os.write(sys.stdout.fileno(), json.dumps([sent, self._lines, lost]).encode() + b"\n")

    def give_up(self, pidfd: int) -> None:
        """Ends the worker, and lets others go on with its runs."""
        note = (
            f"the event loop stood still for {self._silent:.0f} s: this worker process is ended, its runs handed on\n"
        )
        os.write(sys.stderr.fileno(), note.encode())
        _attempt(self._mark_stalled)  # before another worker takes the runs; _let_go repeats it, perhaps too late
        for number in (signal.SIGABRT, signal.SIGKILL):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, number)
            if select.select([pidfd], [], [], _GRACE_SECONDS)[0]:
                break
        for _ in range(_TRIES):
            if _attempt(self._let_go):
                return
            time.sleep(1)

    def _mark_stalled(self) -> None:
        for id in self._held:
            self._mark(id, ends_lease=False)

    def _let_go(self) -> None:
        for id in list(self._held):
            self._mark(id, ends_lease=True)
            del self._held[id]

    def _mark(self, id: str, *, ends_lease: bool) -> None:
        key, fence = self._held[id]
        arguments = json.dumps({"id": id, "fence": fence, "ends_lease": ends_lease})
        self._client().eval(self._told["stalled"], 2, key, self._told["leases"], arguments)

    def _client(self) -> Any:
        if self._redis is None:
            import redis

            seconds = max(0.5, self._told["lease"] / 3)
            self._redis = redis.Redis.from_url(
                self._told["url"], socket_timeout=seconds, socket_connect_timeout=seconds
            )
        return self._redis


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped the process: a signal, or a debugger."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "tT"
    except (OSError, IndexError):
        return False


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # it knows Redis's password
    incoming = sys.stdin.fileno()
    standby = Standby(json.loads(sys.stdin.buffer.readline()))
    try:
        pidfd = os.pidfd_open(standby.worker)
    except ProcessLookupError:
        return
    if os.getppid() != standby.worker:  # it died before we looked, and its number may be another's
        return
    os.set_blocking(sys.stdout.fileno(), False)
    while True:
        ready = select.select([incoming, pidfd], [], [], standby.tick)[0]
        if pidfd in ready:
            return
        if incoming in ready:
            if not (data := os.read(incoming, _CHUNK)):
                return
            standby.hear(data)
        if not standby.watch():
            standby.give_up(pidfd)
            return


if __name__ == "__main__":
    main()
