"""The protections of commands, one table: what each promises, what tries it on this machine, what that must print.

A worker's start tries those of ``AT_START`` and ``FROM_OUTSIDE``; no command runs before they have passed. `deputize
doctor` tries all of them, and the attacks of the tests do so through a worker.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ...shared.errors import ErrorType, Misconfigured, ToolError
from ...shared.settings import SandboxSettings
from ..linux.system import exhausted
from .base import Sandbox
from .bounds import WorkerBounds
from .command import Command, Completed
from .egress import PORT, Egress
from .environment import OFFLINE, VARIABLES, Bwrap, owner, program, program_mounts
from .project_tools import NO_TOOLS, ProjectTools


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
    Protection("secrets", "an environment that a command can read holds a variable of the worker", "environments"),
    Protection("secrets", "memory that a command can read holds a variable of the worker", "memory"),
    Protection("secrets", "a command opened {}", "private"),
    Protection("files", "a command opened {}", "neighbour"),
    Protection("files", "a command opened {}", "others"),
    Protection("files", "a command reached {}", "redis"),
    Protection("network", "a command reached {}", "servers"),
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
_SECONDS = 15
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
LIMITS = SandboxSettings(memory_bytes=64 << 20, disk_bytes=1 << 20, processes=16, cpus=1)
_PROBE = Path(__file__).with_name("probe.py")
_METADATA = ("169.254.169.254", 80)
_ELSEWHERE = [
    ["the metadata service", socket.AF_INET, socket.SOCK_STREAM, _METADATA],
    ["the metadata service by UDP", socket.AF_INET, socket.SOCK_DGRAM, _METADATA],
]
"""Name, family, kind and address of what lies outside of this machine; nothing has to listen there."""
_CALLS = (
    *(("unshare", 272, 97), ("setns", 308, 268), ("mount", 165, 40), ("umount2", 166, 39), ("pivot_root", 155, 41)),
    *(("open_tree", 428, 428), ("move_mount", 429, 429), ("fsopen", 430, 430), ("mount_setattr", 442, 442)),
    *(("chroot", 161, 51), ("ptrace", 101, 117), ("process_vm_readv", 310, 270), ("process_vm_writev", 311, 271)),
    *(("pidfd_getfd", 438, 438), ("add_key", 248, 217), ("request_key", 249, 218), ("keyctl", 250, 219)),
    *(("bpf", 321, 280), ("perf_event_open", 298, 241), ("userfaultfd", 323, 282), ("io_uring_setup", 425, 425)),
    *(("io_uring_enter", 426, 426), ("open_by_handle_at", 304, 265), ("memfd_create", 319, 279)),
    *(("memfd_secret", 447, 447), ("shmget", 29, 194), ("init_module", 175, 105), ("finit_module", 313, 273)),
    *(("kexec_load", 246, 104), ("reboot", 169, 142), ("swapon", 167, 224), ("acct", 163, 89), ("syslog", 103, 116)),
    *(("fanotify_init", 300, 262), ("clock_settime", 227, 112), ("sethostname", 170, 161), ("clone3", 435, 435)),
)
"""System calls that the kernel must refuse, with their numbers on x86-64 and on aarch64."""
_FAMILIES = {
    "VSOCK": 40,
    "ALG": 38,
    "PACKET": 17,
    "XDP": 44,
    "BLUETOOTH": 31,
    "TIPC": 30,
    "CAN": 29,
    "KEY": 15,
    "RDS": 21,
}
_REMEDY = (
    "Install bubblewrap (the system's package, or this project's extra `sandbox`); in a container, run the worker "
    "with the seccomp profile worker/sandbox/seccomp-worker.json and unmasked /proc (systempaths=unconfined). "
    "Ubuntu 23.10 and newer: sysctl kernel.apparmor_restrict_unprivileged_userns=0."
)


Make = Callable[..., AbstractContextManager[Sandbox]]
"""Makes a sandbox over a directory, as ``Bubblewrap`` does; a test passes one that lacks a protection."""


def _new_folder(root: Path | None) -> Path:
    if root:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="selftest-", dir=root))


def _give(path: Path) -> None:
    """Lets commands own what they may write."""
    if ids := owner():
        os.chown(path, *ids)


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


async def run_selftest(make: Make, home: Path | None, bwraps: Iterable[Bwrap]) -> SelfTestResult:
    """Tries each bubblewrap in a temporary workspace below ``home``. Returns the first with all protections."""
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
    folder = _new_folder(home)
    try:
        workspace = folder / "files"
        workspace.mkdir()
        _give(workspace)
        with make(workspace, bwrap) as sandbox:
            printed = await _printed_at_start(sandbox) | seen_outside(workspace)
            found = judged((*AT_START, *FROM_OUTSIDE[:-1]), printed)
            if not any(found.values()):
                found = judged(FROM_OUTSIDE[-1:], {"left": await _left_by_killed(sandbox, workspace)})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
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
        raise ToolError(ErrorType.EXECUTION_FAILED, f"what tries the sandbox printed something else: {output[-500:]}")
    return {row.tries: words for row, (_, _, words) in zip(AT_START, found, strict=True)}


def seen_outside(workspace: Path) -> dict[str, str]:
    """Returns what is to be seen of the file that the script has written."""
    written = workspace / "probe"
    if not written.exists():
        return {"content": "", "owner": ""}
    return {"content": written.read_text("utf-8", "replace").strip(), "owner": str(written.stat().st_uid)}


async def _printed_at_start(sandbox: Sandbox) -> dict[str, str]:
    done = await sandbox.run(Command(["/bin/sh", "-c", f"{script_at_start()}\nexit {_EXIT_CODE}"], _START_SECONDS))
    if done.exit_code != _EXIT_CODE:
        stderr = done.stderr.decode("utf-8", "replace").strip()[-500:]
        why = f"a command that exits with {_EXIT_CODE} ended with exit code {done.exit_code}: {stderr}"
        raise ToolError(ErrorType.EXECUTION_FAILED, why)
    return printed_at_start(done.stdout.decode("utf-8", "replace"))


async def _left_by_killed(sandbox: Sandbox, workspace: Path) -> str:
    """Cancels a command with a daemon; a pipe without a reader shows that the daemon has ended."""
    up = asyncio.Event()
    command = Command(["/bin/sh", "-c", f"{DAEMON}; sleep 1000"], _START_SECONDS)
    task = asyncio.ensure_future(sandbox.run(command, lambda _: up.set()))
    waiting = asyncio.ensure_future(up.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    task.cancel()
    await asyncio.wait([task])
    return _left(workspace) if up.is_set() else "did not begin"


def _left(workspace: Path) -> str:
    """Returns whether a process still reads the pipe: that is known whatever the process did to hide."""
    try:
        os.close(os.open(workspace / PIPE, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return "has ended"
    return "goes on"


class Canaries:
    """What no command may find, where a worker's secrets and other runs lie, and servers that none may reach.

    They are there as long as the block runs. ``root`` is the directory of the workspaces, or of what else is private to
    the worker. The process that tries the protections has a canary in its environment, too, from the process that
    started it.
    """

    def __init__(self, root: Path | None) -> None:
        self._opened = ExitStack()
        self.folder = _new_folder(root)
        self._opened.callback(shutil.rmtree, self.folder, ignore_errors=True)
        names = [f"canary-{secrets.token_hex(8)}" for _ in range(2)]  # by which a walk finds them under any path
        self.private, self.neighbour = self.folder / "private" / names[0], self.folder / "other/files" / names[1]
        for path in (self.private, self.neighbour):
            path.parent.mkdir(mode=0o700, parents=True)
            path.write_text("canary")
            path.chmod(0o600)
        for path in (self.neighbour.parent, self.neighbour):  # as the files of every run: only mounts keep them apart
            _give(path)
        self.servers = self._listening()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def paths(self) -> dict[str, list[Path]]:
        """What no command may open, by row."""
        own = Path("/proc", str(os.getpid()), "environ")
        return {
            "private": [self.private, self.private.parent, self.folder],
            "neighbour": [self.neighbour],
            "others": [own, Path("/etc/shadow"), Path("/run/secrets")],
        }

    def workspace(self, name: str) -> Path:
        """Returns a directory that commands may write, beside the neighbour's."""
        path = self.folder / name / "files"
        path.mkdir(parents=True, exist_ok=True)
        _give(path)
        return path

    def _listening(self) -> list[list[Any]]:
        """Returns name, family, kind and address of each server."""
        abstract = f"\0deputize-{secrets.token_hex(8)}"
        wanted: list[tuple[str, int, Any]] = [
            ("a server on 127.0.0.1", socket.AF_INET, ("127.0.0.1", 0)),
            ("a server on ::1", socket.AF_INET6, ("::1", 0)),
            ("an abstract socket", socket.AF_UNIX, abstract),
            ("a socket in a private folder", socket.AF_UNIX, str(self.private.with_name("socket"))),
        ]
        found: list[list[Any]] = []
        for name, family, address in wanted:
            server = self._opened.enter_context(socket.socket(family))
            try:
                server.bind(address)
            except OSError:  # a machine without IPv6, or a path longer than an address may be
                continue
            server.listen()
            bound = server.getsockname()
            own = os.fsdecode(bound) if isinstance(bound, bytes) else bound
            found.append([name, family, socket.SOCK_STREAM, own])
        return found


async def try_commands(
    make: Make,
    canaries: Canaries,
    redis: Iterable[list[Any]] = (),
    secrets: Iterable[str] = (),
    tools: ProjectTools = NO_TOOLS,
) -> tuple[Problems, list[str]]:
    """Looks for canaries and secrets, and tries networks and system calls, inside a sandbox.

    ``redis`` are name, family, kind and address of the server under each of its addresses. Returns the problems, and
    the names of the variables that commands have. Raises ToolError if commands cannot be run.
    """
    servers = {"servers": canaries.servers, "redis": [*redis]}
    asked = asked_of_commands(canaries.paths, servers, {row: [path[0].name] for row, path in canaries.paths.items()})
    with make(canaries.workspace("isolation"), tools=tools) as sandbox:
        found = await _probe(sandbox, asked)
    environ = found["environ"]
    if not found["environments"]:
        found["environments"] = [name for name in secrets if name in environ]
    found["memory"] = [value for value in found["memory"] if value not in found["environments"]]
    variables = sorted({line.partition("=")[0] for line in environ.split("\0") if "=" in line})
    return judged(BY_PROBE, {row.tries: "\n".join(found[row.tries]) for row in BY_PROBE}), variables


def asked_of_commands(
    paths: Mapping[str, Iterable[Path]], servers: Mapping[str, Sequence[list[Any]]], names: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Returns what a command looks for, as the argument of ``probe.py``: paths, servers and names of files, by row."""
    return {
        "everyone": True,
        "paths": {row: [str(path) for path in each] for row, each in paths.items()},
        "names": names,
        "addresses": {**servers, "servers": [*servers["servers"], *_ELSEWHERE]},
        "calls": {name: numbers[os.uname().machine == "aarch64"] for name, *numbers in _CALLS},
        "families": _FAMILIES,
    }


async def try_egress(make: Make, canaries: Canaries, reach: Egress, allowed: str, others: list[str]) -> Problems:
    """Asks the proxy of commands for a URL that is allowed, and for others. Raises ToolError."""
    with make(canaries.workspace("egress"), reach=reach) as sandbox:
        first, *rest = (await _probe(sandbox, {"proxy": PORT, "urls": [allowed, *others]}))["answers"]
    refusals = ("HTTP/1.1 403", "HTTP/1.1 502")
    reached = [url for url, line in zip(others, rest, strict=True) if not line.startswith(refusals)]
    return judged(BY_PROXY, {"allowed": first, "refused": "\n".join(reached)})


async def _probe(sandbox: Sandbox, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a command finds. Raises ToolError if the sandbox has no Python to look with."""
    python = program("python3", program_mounts()) or "python3"
    line = [python, "-I", "-S", "-c", _PROBE.read_text("utf-8"), json.dumps(asked)]
    done = await sandbox.run(Command(line, _SECONDS))
    try:
        return json.loads(done.stdout)
    except ValueError:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ToolError(ErrorType.EXECUTION_FAILED, f"what looks around failed: {last}") from None


async def try_limits(
    make: Make, canaries: Canaries, limits: SandboxSettings = LIMITS, seconds: float = _SECONDS
) -> tuple[Problems, bool]:
    """Tries limits, all at once, each for no longer than ``seconds``.

    Returns the problems, and whether control groups bound memory. Raises ToolError.
    """
    bounds = await asyncio.to_thread(WorkerBounds.of_process, limits)

    async def printed_by(number: int, row: Protection) -> str:
        folder = await asyncio.to_thread(canaries.workspace, f"limit-{number}")
        with bounds.run(folder) as run, make(folder, bounds=run) as sandbox:
            done = await sandbox.run(Command(["sh", "-c", row.tries], seconds))
            if bounds.group and row.tries == "nproc":
                return " ".join({path.read_text().strip() for path in bounds.group.path.glob("run-*/cpu.max")})
            return _words(done, folder)

    try:
        async with asyncio.TaskGroup() as together:
            tasks = [together.create_task(printed_by(*each)) for each in enumerate(BY_LIMIT)]
    except* ToolError as group:
        raise group.exceptions[0] from None
    finally:
        bounds.close()
    printed = {row.tries: task.result() for row, task in zip(BY_LIMIT, tasks, strict=True)}
    return judged(BY_LIMIT, printed), bounds.group is not None


def _words(done: Completed, folder: Path) -> str:
    """Returns what a command printed and what became of it."""
    if done.timed_out:
        return "timed out"
    has_ended = [_left(folder)] if (folder / PIPE).exists() else []
    return " ".join([*done.stdout.decode("utf-8", "replace").split(), *has_ended, done.exceeded]).strip()
