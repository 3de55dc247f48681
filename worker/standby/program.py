"""The standby program. Imports nothing of this project; the package's docstring describes what it does.

stdin: one line of JSON (the settings), then lines: ``.`` is a heartbeat, ``+ id key fence`` and ``- id`` add and remove
a lease; each counts as a heartbeat. stdout: a line of JSON per renewal: its send time, how many lines had been read
before, and the ids whose lease another worker has.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_PR_SET_DUMPABLE = 4
_CHUNK = 1 << 16
_GRACE_SECONDS = 2.0
_FIRST_LOOKS, _LAST_LOOK = (0.0, 0.2), 0.8
"""Seconds before each look for half-built sandboxes: they may become so shortly after the worker's death."""
_GUARD = b"/.guard/sh"
"""An argument that every sandbox has (``worker/sandbox/process.py``)."""
_TRIES = 20
"""Tries to mark the stalled runs, a second apart: after that their leases have lapsed anyway."""


class LeaseRenewal:
    """The leases of the worker, and the time since its last heartbeat."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.worker: int = settings["pid"]
        self.tick: float = settings["tick"]
        self._settings = settings
        self._held: dict[str, tuple[str, str]] = {}
        self._lines = 0
        self._renewed = 0.0
        self._silence = 0.0
        self._looked = time.monotonic()
        self._rest = b""
        self._redis: Any = None

    def receive(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._silence = 0.0
            self._lines += 1
            match line.decode().split(" "):
                case ["+", id, key, fence]:
                    self._held[id] = (key, fence)
                case ["-", id]:
                    self._held.pop(id, None)
                case _:
                    pass

    def watch(self) -> bool:
        """Renews the leases where the worker does not. Returns False after too long without a heartbeat."""
        now = time.monotonic()
        # Where this process itself got no CPU time, a missing heartbeat proves nothing about the worker.
        self._silence += min(now - self._looked, 2 * self.tick)
        self._looked = now
        if is_stopped(self.worker):
            self._silence = 0.0
        third = self._settings["lease"] / 3
        if self._silence >= third and now - self._renewed >= third:
            self.renew(self._settings["lease"])
        return self._silence < self._settings["bound"]

    def renew(self, seconds: float) -> None:
        """Renews the leases for so long; 0 ends those that the worker still has."""
        sent, held = time.monotonic(), list(self._held.items())
        keys = [self._settings["leases"], *(key for _, (key, _) in held)]
        runs = [{"id": id, "fence": fence} for id, (_, fence) in held]
        arguments = {"lease_ms": int(seconds * 1000), "runs": runs}
        if not held or (answers := self._evaluate("renew", keys, arguments)) is None:
            return
        self._renewed = sent
        lost = [id for (id, _), answer in zip(held, answers, strict=True) if answer == b"fenced"]
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(sys.stdout.fileno(), json.dumps([sent, self._lines, lost]).encode() + b"\n")

    def give_up(self, pidfd: int) -> None:
        """Ends the worker, and releases its runs to other workers."""
        note = (
            f"the event loop was blocked for {self._silence:.0f} s: this worker process is ended, its runs requeued\n"
        )
        os.write(sys.stderr.fileno(), note.encode())
        try:
            self._mark_stalled(ends_lease=False)  # before another worker takes the runs; later it may be too late
        finally:
            _end(pidfd)
        for _ in range(_TRIES):
            if self._mark_stalled(ends_lease=True):
                return
            time.sleep(1)

    def _mark_stalled(self, *, ends_lease: bool) -> bool:
        """Marks all runs, and forgets those whose lease it has ended; False where Redis was unavailable."""
        for id, (key, fence) in list(self._held.items()):
            arguments = {"id": id, "fence": fence, "ends_lease": ends_lease}
            if self._evaluate("stalled", [key, self._settings["leases"]], arguments) is None:
                return False
            if ends_lease:
                del self._held[id]
        return True

    def _evaluate(self, script: str, keys: list[str], arguments: dict[str, Any]) -> Any:
        """Runs a Lua script, which must not return nil; None where Redis or its client (removed under the running
        worker) cannot be used now."""
        try:
            from redis import Redis, RedisError
        except ImportError:
            return None
        if self._redis is None:
            seconds = max(0.5, self._settings["lease"] / 3)
            times: dict[str, Any] = {"socket_timeout": seconds, "socket_connect_timeout": seconds}
            if sentinels := self._settings.get("sentinels"):
                from redis.sentinel import Sentinel

                service = Sentinel([*map(tuple, sentinels)], **times)
                self._redis = service.master_for(self._settings["service"], **self._settings["options"], **times)
            else:
                self._redis = Redis.from_url(self._settings["url"], **times)
        try:
            return self._redis.eval(self._settings[script], len(keys), *keys, json.dumps(arguments))
        except (RedisError, OSError):
            return None


def _end(pidfd: int) -> None:
    """Ends the worker, with its stack on stderr where it can still write it."""
    for number in (signal.SIGABRT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)
        if select.select([pidfd], [], [], _GRACE_SECONDS)[0]:
            break


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped by a signal or a debugger."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "tT"
    except (OSError, IndexError):
        return False


def end_half_built_sandboxes(*looks: float) -> None:
    """Kills what is left of sandboxes that were being set up when the worker died.

    ``timeout`` leads a sandbox's process group and kills the group when the worker dies. At the moment at which it has
    just started bubblewrap it only ends itself: then bubblewrap dies alone, and its child waits for it for ever.
    """
    for seconds in looks:
        time.sleep(seconds)
        for pid in [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]:
            with suppress(OSError):
                if not _is_half_built(pid):
                    continue
                pidfd = os.pidfd_open(pid)
                if _is_half_built(pid):  # it still is that process
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                os.close(pidfd)


def _is_half_built(pid: int) -> bool:
    """Whether the process is a sandbox's bubblewrap in a process group without its leader."""
    program, *arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    if not program.endswith(b"bwrap") or _GUARD not in arguments:
        return False
    leader = os.getpgid(pid)
    return leader != pid and not _is_alive(leader)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def accompany() -> LeaseRenewal | None:
    """Stands by until the worker has ended. Returns the standby of one that died, with the leases that it held."""
    incoming = sys.stdin.fileno()
    with os.fdopen(incoming, "rb", 0, closefd=False) as unbuffered:  # what follows the line stays in the pipe
        standby = LeaseRenewal(json.loads(unbuffered.readline()))
    try:
        pidfd = os.pidfd_open(standby.worker)
    except ProcessLookupError:
        return None
    if os.getppid() != standby.worker:  # it ended before this check, and its pid may be reused
        return None
    os.set_blocking(sys.stdout.fileno(), False)
    while True:
        ready = select.select([incoming, pidfd], [], [], standby.tick)[0]
        if incoming in ready:
            if not (data := os.read(incoming, _CHUNK)):  # a dying worker closes its descriptors first
                return standby if select.select([pidfd], [], [], _GRACE_SECONDS)[0] else None
            standby.receive(data)
        elif pidfd in ready:
            return standby
        if not standby.watch():
            standby.give_up(pidfd)
            return None


def main() -> None:
    """Where a worker ends in good order, it ends this process, too: then nothing is half built, and nothing held."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # its memory holds Redis's password
    lost = None
    try:
        lost = accompany()
    finally:
        end_half_built_sandboxes(*_FIRST_LOOKS)
        if lost:  # by now its commands and servers have died, too
            lost.renew(0)
        end_half_built_sandboxes(_LAST_LOOK)


if __name__ == "__main__":
    main()
