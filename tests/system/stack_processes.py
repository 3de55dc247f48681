"""This machine's stack: a process that uses it, and the processes that it is made of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from functools import cached_property
from pathlib import Path
from typing import Any

from deputize.shared.settings import Settings
from tests.processes.preloaded import Forked
from tests.waiting import until_sync

ROOT = Path(__file__).parents[2]
PROGRAM = "tests.system.stack_user"


class User:
    """A process that uses the stack of ``home``; ``stack`` is what it has read. ``before`` is what runs its program."""

    def __init__(self, home: Path, *said: str, before: tuple[str, ...] = (), **variables: str) -> None:
        self.home = home
        (given, self._input), (answer, written) = os.pipe(), os.pipe()
        self._answer = os.fdopen(answer)
        arguments, environment = [str(home), *said], {**os.environ, **variables}
        if before:
            command = [*before, sys.executable, "-m", PROGRAM, *arguments]
            self.process = subprocess.Popen(command, cwd=ROOT, stdin=given, stdout=written, env=environment)
        else:
            self.process = Forked(PROGRAM, arguments, environment, stdin=given, stdout=written)
        os.close(given)
        os.close(written)

    @cached_property
    def stack(self) -> dict[str, Any]:
        return json.loads(self._answer.readline())

    def leave(self) -> None:
        """Ends its input, and waits until it has ended. Does nothing the second time."""
        if not self._answer.closed:
            os.close(self._input)
            self.process.wait()
            self._answer.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def settings(home: Path) -> Settings:
    return Settings.load(environ={}, home=home)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def family(pid: int) -> dict[int, str]:
    """A process with everything below it, and how each was started."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {member: _command(member) for member in found if alive(member)}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def child(pid: int, what: str, but: int = 0) -> int:
    """A process below ``pid`` whose command line has ``what``; 0 for none."""
    return next((found for found, command in family(pid).items() if what in command and found != but), 0)


def gone(pids: set[int] | dict[int, str], timeout: float = 30) -> None:
    until_sync(lambda: not any(alive(pid) for pid in pids), timeout)


def ready(stack: dict[str, Any]) -> bool:
    try:
        with urllib.request.urlopen(f"{stack['url']}/readyz", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def workers_of(supervisor: int) -> int:
    return sum("-m deputize.worker --name" in command for command in family(supervisor).values())
