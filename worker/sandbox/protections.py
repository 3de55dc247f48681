"""The protections of commands, one table: what each promises, what tries it on this machine, what that must print.

A worker's start tries those of ``AT_START`` and ``FROM_OUTSIDE``; no command runs before they have passed. `deputize
doctor` tries all of them, and the attacks of the tests do so through a worker.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from ...shared.errors import ErrorType, Misconfigured, ToolError
from ..contracts import Command, Completed
from ..linux.system import exhausted
from .environment import OFFLINE, VARIABLES, Bwrap, owner


@dataclass(frozen=True, slots=True)
class Protection:
    """One protection of commands, and how it is tried."""

    promise: str
    """The promise of the README that it is part of."""
    broken: str
    """What is wrong without it; ``{}`` is each line that was printed."""
    tries: str
    """What tries it: a line for a shell, or the name of what is looked for."""
    must: str = ""
    """The pattern of what has to be printed."""
    seen: str = ""
    """What the same program has to find outside of a sandbox. If it does not, it is blind and proves nothing."""

    def problems(self, printed: str) -> list[str]:
        """Returns what is wrong by what was printed."""
        if re.fullmatch(self.must, printed):
            return []
        return [*dict.fromkeys(self.broken.format(line) for line in printed.splitlines() or [""])]


_OF_FIRST = r"tr '\0' '\n' </proc/1/environ | cut -d= -f1"
_OF_COMMAND = r"cat /proc/self/environ | tr '\0' '\n' | cut -d= -f1"  # of cat: a shell's is gone when tr replaces it
_KNOWN = "|".join([*VARIABLES, *OFFLINE, "PATH", "PWD", "OLDPWD", "_", "SHLVL"])
_LINKS = "shared net; sed -n '3,$s/:.*//p' /proc/net/dev"
_FEW = r"[1-9]\d?|1\d\d|2[0-4]\d|25[0-6]"
_PRIVILEGES = r"sed -nE 's/^(Cap...|NoNewPrivs|Seccomp):\s*//p' /proc/self/status"
DAEMON = "setsid sh -c 'exec sleep 1000 <alive' & exec 3>alive; echo up"
"""Leaves a process that has left its shell's session, and that reads the pipe ``alive``."""
AT_START = (
    Protection("secrets", "the first process has variables: {}", _OF_FIRST),
    Protection(
        "secrets",
        "commands have other variables than they are given: {}",
        _OF_COMMAND,
        rf"(?:(?:{_KNOWN})(?: |$))+",
    ),
    Protection("files", "the host shows {}", "ls -d /root /home /var /run /mnt /srv /etc/shadow"),
    Protection("files", "the system can be written", "yes eval 'true >/probe'; yes eval 'true >/usr/probe'", "no no"),
    Protection("network", "commands have the host's network: {}", _LINKS, "|lo"),
    Protection("kernel", "commands have namespaces of the host: {}", "shared user pid mnt ipc"),
    Protection("kernel", "{} processes are visible", "set -- /proc/[0-9]*; echo $#", r"\d|1[0-5]"),
    Protection("kernel", "{} descriptors are open, not 4", "set -- $(ls /proc/self/fd); echo $#", "[0-4]"),
    Protection("kernel", "privileges or system calls are not as they must be: {}", _PRIVILEGES, "(0{16} ){5}1 2"),
    Protection("kernel", "the kernel can be set", "yes eval 'true >>/proc/sys/kernel/core_pattern'", "no"),
    Protection("kernel", "namespaces can be created", "yes unshare --user true", "no"),
    Protection("kernel", "commands are user {}, not 1000", "id -u", "1000"),
    Protection("bounds", "a command may have {} processes", "ulimit -u || ulimit -p", _FEW),
)
"""Lines for a shell, with builtins where possible, so that nothing but a missing protection fails one."""
FROM_OUTSIDE = (
    Protection("files", "the workspace cannot be written", "content", "done"),
    Protection("kernel", "commands are root on the host, too", "owner", r"|[1-9]\d*"),
    Protection("bounds", "the process that a killed command has left {}", "left", "has ended"),
)
"""What is seen of the workspace from outside."""
BY_PROBE = (
    Protection(
        "secrets",
        "an environment that a command can read holds a variable of the worker",
        "environments",
        seen="the variable in its environment",
    ),
    Protection(
        "secrets",
        "memory that a command can read holds a variable of the worker",
        "memory",
        seen="the variable in its memory",
    ),
    Protection("secrets", "a command opened {}", "private", seen="the private file"),
    Protection("files", "a command opened {}", "neighbour", seen="the file of another run"),
    Protection("files", "a command opened {}", "others"),
    Protection("files", "a command reached {}", "redis"),
    Protection("network", "a command reached {}", "servers", seen="every server of this machine"),
    Protection("kernel", "the system call {} was not refused", "calls"),
    Protection("kernel", "a socket of the family {} was not refused", "families"),
)
"""What ``probe.py`` looks for."""
BY_PROXY = (
    Protection("network", "a command did not reach an allowed host: {}", "allowed", "HTTP/1.1 200.*"),
    Protection("network", "a command reached {}, which is not allowed", "refused"),
)
"""What ``probe.py`` asks the proxy for."""
_HOLD_MEMORY = "dd if=/dev/zero bs=100M count=1 2>/dev/null | sleep 1000"
_FILL_DISK = "head -c 9M /dev/zero >a; exec sleep 1000"
_FORK = "i=0; while [ $i -lt 64 ]; do sleep 1000 & i=$((i+1)); done 2>/dev/null; echo all"
BY_LIMIT = (
    Protection("bounds", "memory is not bounded", _HOLD_MEMORY, r".*sandbox\.memory_bytes.*"),
    Protection("bounds", "disk is not bounded", _FILL_DISK, r".*sandbox\.disk_bytes.*"),
    Protection("bounds", "processes are not bounded", _FORK, "(?!all|timed out).*"),
    Protection("bounds", "processors are not bounded", "nproc", "1|100000 100000"),
    Protection("bounds", "the process that a command has left {}", f"mkfifo alive; {DAEMON}", "up has ended"),
)
"""Lines for a shell that exceed small limits."""
Problems = dict[str, list[str]]
"""What is wrong, by promise; an empty list where all is well."""
_START_SECONDS = 20
_TRIES = 3
_EXIT_CODE = 42
_PRELUDE = r"""
yes() { "$@" >/dev/null 2>&1 && echo yes || echo no; }
shared() {
    found=$(cd /proc/self/ns && readlink "$@") || echo unknown
    for each in $found; do case "$host" in *"$each"*) echo "$each";; esac; done
}
"""
_NAMESPACES = ("user", "pid", "mnt", "net", "ipc")
PIPE = "alive"
_REMEDY = (
    "Install bubblewrap (the system's package, or this project's extra `sandbox`); in a container, run the worker "
    "with the seccomp profile worker/sandbox/seccomp-worker.json and unmasked /proc (systempaths=unconfined). "
    "Ubuntu 23.10 and newer: sysctl kernel.apparmor_restrict_unprivileged_userns=0."
)


class Runner(Protocol):
    """Runs commands in a sandbox."""

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed: ...


Make = Callable[..., AbstractContextManager[Runner]]
"""Makes a sandbox over a directory, as ``Bubblewrap`` does; a test passes one that lacks a protection."""


def new_folder(root: Path | None) -> TemporaryDirectory[str]:
    if root:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return TemporaryDirectory(prefix="selftest-", dir=root, ignore_cleanup_errors=True)


def give(path: Path) -> None:
    """Lets commands own what they may write."""
    if ids := owner():
        os.chown(path, *ids)


def new_workspace(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    give(path)
    return path


def judged(rows: Iterable[Protection], printed: Mapping[str, str]) -> Problems:
    """Returns what is wrong by what each of the rows has printed."""
    found: Problems = {}
    for row in rows:
        found.setdefault(row.promise, []).extend(row.problems(printed[row.tries]))
    return found


@dataclass(frozen=True, slots=True)
class SelfTestResult:
    """The bubblewrap that passed the self-test, or why none did."""

    bwrap: Bwrap | None
    reason: str | None


async def run_selftest(make: Make, home: Path | None, bwraps: Sequence[Bwrap]) -> SelfTestResult:
    """Tries each bubblewrap in a temporary workspace below ``home``. Returns the first with all protections.

    What fails is tried ``_TRIES`` times: the result is that of the whole process, and another run may have filled the
    disk while the commands wrote. They do not begin on a full disk.
    """
    found, tries = await _tried(make, home, bwraps), 1
    while found.bwrap is None and bwraps and tries < _TRIES:
        found, tries = await _tried(make, home, bwraps), tries + 1
    return found


async def _tried(make: Make, home: Path | None, bwraps: Iterable[Bwrap]) -> SelfTestResult:
    reasons: list[str] = []
    for bwrap in bwraps:
        try:
            problems = await _test(make, bwrap, home)
        except (ToolError, Misconfigured, OSError) as error:
            if why := exhausted(error.__cause__ or error):
                return SelfTestResult(None, why)
            problems = [str(error)]
        if not problems:
            return SelfTestResult(bwrap, None)
        reasons.append(f"{bwrap.program}: {'; '.join(problems)}")
    return SelfTestResult(None, f"{'; '.join(reasons) or 'there is no bubblewrap'}. {_REMEDY}")


async def _test(make: Make, bwrap: Bwrap, home: Path | None) -> list[str]:
    with new_folder(home) as folder:
        workspace = new_workspace(Path(folder, "files"))
        with make(workspace, bwrap) as sandbox:
            printed = await _printed_at_start(sandbox) | seen_outside(workspace)
            found = judged((*AT_START, *FROM_OUTSIDE[:-1]), printed)
            if not any(found.values()):
                found = judged(FROM_OUTSIDE[-1:], {"left": await _left_by_killed(sandbox, workspace)})
    return [problem for problems in found.values() for problem in problems]


def script_at_start() -> str:
    """Returns the script that prints number and words of each row that is tried at the start, and writes a file."""
    host = " ".join(os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES)  # noqa: PTH115 - never blocks
    lines = [f"echo {number} $({{ {row.tries}; }} 2>/dev/null)" for number, row in enumerate(AT_START)]
    return "\n".join([f"host='{host}'{_PRELUDE}", *lines, f"echo done >probe; mkfifo {PIPE}"])


def printed_at_start(output: str) -> dict[str, str]:
    """Returns what each row has printed. Raises ToolError for another output than the script's."""
    found = [line.partition(" ") for line in output.splitlines()]
    if [number for number, _, _ in found] != [str(number) for number in range(len(AT_START))]:
        raise ToolError(
            ErrorType.EXECUTION_FAILED, f"the program that tries the sandbox printed something else: {output[-500:]}"
        )
    return {row.tries: words for row, (_, _, words) in zip(AT_START, found, strict=True)}


def seen_outside(workspace: Path) -> dict[str, str]:
    """Returns what is to be seen of the file that the script has written."""
    written = workspace / "probe"
    if not written.exists():
        return {"content": "", "owner": ""}
    return {"content": written.read_text("utf-8", "replace").strip(), "owner": str(written.stat().st_uid)}


async def _printed_at_start(sandbox: Runner) -> dict[str, str]:
    done = await sandbox.run(Command(["/bin/sh", "-c", f"{script_at_start()}\nexit {_EXIT_CODE}"], _START_SECONDS))
    if done.exit_code != _EXIT_CODE:
        stderr = done.stderr.decode("utf-8", "replace").strip()[-500:]
        why = f"a command that exits with {_EXIT_CODE} ended with exit code {done.exit_code}: {stderr}"
        raise ToolError(ErrorType.EXECUTION_FAILED, why)
    return printed_at_start(done.stdout.decode("utf-8", "replace"))


async def _left_by_killed(sandbox: Runner, workspace: Path) -> str:
    """Cancels a command with a daemon; a pipe without a reader shows that the daemon has ended."""
    up = asyncio.Event()
    command = Command(["/bin/sh", "-c", f"{DAEMON}; sleep 1000"], _START_SECONDS)
    task = asyncio.ensure_future(sandbox.run(command, lambda _: up.set()))
    task.add_done_callback(lambda _: up.set())
    await up.wait()
    if task.done():
        return "did not begin"
    task.cancel()
    await asyncio.wait([task])
    return left(workspace)


def left(workspace: Path) -> str:
    """Returns whether a process still reads the pipe: that is known whatever the process did to hide."""
    try:
        os.close(os.open(workspace / PIPE, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return "has ended"
    return "goes on"
