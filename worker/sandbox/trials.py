"""The protections that take longer than a worker's start may: canaries, servers, system calls, a proxy and limits."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ...shared.errors import ErrorType, ToolError
from ...shared.settings import SandboxSettings, Settings
from ..contracts import Command, Completed
from .bounds import WorkerBounds
from .egress import PORT, Egress
from .environment import SYSTEM_PATH, program, program_mounts
from .project_tools import tools_for
from .protections import (
    BY_LIMIT,
    BY_PROBE,
    BY_PROXY,
    PIPE,
    Make,
    Problems,
    Protection,
    Runner,
    give,
    judged,
    left,
    new_folder,
    new_workspace,
)

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
_SECONDS = 15
_LOOKUP_SECONDS = 1.0
Tried = tuple[Problems, dict[str, str]]
"""What is wrong, and how it was tried; both by promise."""


class Canaries(ExitStack):
    """What no command may find, where a worker's secrets and other runs lie, and servers that none may reach.

    They are there as long as the block runs. ``root`` is the directory of the workspaces, or of what else is private to
    the worker. The process that tries the protections has a canary in its environment, too, from the process that
    started it.
    """

    def __init__(self, root: Path | None) -> None:
        super().__init__()
        self.folder = Path(self.enter_context(new_folder(root)))
        names = [f"canary-{secrets.token_hex(8)}" for _ in range(2)]  # by which a walk finds them under any path
        self.private, self.neighbour = self.folder / "private" / names[0], self.folder / "other/files" / names[1]
        for path in (self.private, self.neighbour):
            path.parent.mkdir(mode=0o700, parents=True)
            path.write_text("canary")
            path.chmod(0o600)
        for path in (self.neighbour.parent, self.neighbour):  # as the files of every run: only mounts keep them apart
            give(path)
        self.servers = self._listening()

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
        return new_workspace(self.folder / name / "files")

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
            server = self.enter_context(socket.socket(family))
            try:
                server.bind(address)
            except OSError:  # a machine without IPv6, or a path longer than an address may be
                continue
            server.listen()
            bound = server.getsockname()
            own = os.fsdecode(bound) if isinstance(bound, bytes) else bound
            found.append([name, family, socket.SOCK_STREAM, own])
        return found


async def try_commands(make: Make, canaries: Canaries, settings: Settings) -> Tried:
    """Looks for canaries and secrets, and tries networks and system calls, inside a sandbox and, to compare, outside.

    Raises ToolError if commands cannot be run.
    """
    redis = await _redis(settings.redis_url) if settings.redis_url else []
    servers, names = {"servers": canaries.servers, "redis": redis}, dict.fromkeys(canaries.paths, ())
    asked = asked_of_commands(canaries.paths, servers, {row: [path[0].name] for row, path in canaries.paths.items()})
    tools = await asyncio.to_thread(tools_for, settings, None)
    with make(canaries.workspace("isolation"), tools=tools) as sandbox:
        found, outside = await asyncio.gather(
            _probe(sandbox, asked),
            asyncio.to_thread(_outside, {"paths": asked["paths"], "names": names, "addresses": servers}),
        )
    environ = found["environ"]
    if not found["environments"]:
        found["environments"] = [name for name in settings.secrets if name in environ]
    found["memory"] = [value for value in found["memory"] if value not in found["environments"]]
    problems = judged(BY_PROBE, {row.tries: "\n".join(found[row.tries]) for row in BY_PROBE})
    for row in BY_PROBE:
        if row.seen and not _is_seen(row.tries, outside, canaries):
            problems[row.promise].append(f"nothing is proven: a program outside of the sandbox did not find {row.seen}")
    variables = sorted({line.partition("=")[0] for line in environ.split("\0") if "=" in line})
    notes = {"files": " (Redis, too, answers outside of it)"} if outside["redis"] else {}
    return problems, {"secrets": f"; they find {', '.join(variables)}", **notes}


def _is_seen(row: str, outside: Mapping[str, Any], canaries: Canaries) -> bool:
    """Returns whether the probe, run outside of a sandbox, has found what it has to find there."""
    wanted = {"private": {str(canaries.private)}, "neighbour": {str(canaries.neighbour)}}
    wanted["servers"] = {name for name, *_ in canaries.servers}
    return bool(outside[row]) and wanted.get(row, set()) <= {*outside[row]}


async def _redis(url: str) -> list[list[Any]]:
    """Returns name, family, kind and address of the server under each of its addresses; none if its name is unknown."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return [["Redis", socket.AF_UNIX, socket.SOCK_STREAM, unquote(parts.path)]]
    with suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(_LOOKUP_SECONDS):
            look_up = asyncio.get_running_loop().getaddrinfo
            found = await look_up(parts.hostname or "localhost", parts.port or 6379, type=socket.SOCK_STREAM)
        return [["Redis", family, kind, address] for family, kind, _, _, address in found]
    return []


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


async def _probe(sandbox: Runner, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a command finds. Raises ToolError if the sandbox has no Python to look with."""
    python = program("python3", program_mounts()) or "python3"
    done = await sandbox.run(Command(_line(python, asked), _SECONDS))
    return _parsed(done.stdout, done.stderr)


def _outside(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Runs the same program as a child of this process, with its environment. Blocks."""
    python = shutil.which("python3", path=SYSTEM_PATH) or sys.executable
    done = subprocess.run(_line(python, asked), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return _parsed(done.stdout, done.stderr)


def _line(python: str, asked: Mapping[str, Any]) -> list[str]:
    return [python, "-I", "-S", "-c", _PROBE.read_text("utf-8"), json.dumps(asked)]


def _parsed(output: bytes, errors: bytes) -> dict[str, Any]:
    try:
        return json.loads(output)
    except ValueError:
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ToolError(ErrorType.EXECUTION_FAILED, f"the program that looks around failed: {last}") from None


async def try_limits(
    make: Make, canaries: Canaries, limits: SandboxSettings = LIMITS, seconds: float = _SECONDS
) -> Tried:
    """Tries limits, all at once, each for no longer than ``seconds``. Raises ToolError."""
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
    how = "a control group" if bounds.group else "measuring: no control group is delegated to this process"
    return judged(BY_LIMIT, printed), {"bounds": f"; memory by {how}"}


def _words(done: Completed, folder: Path) -> str:
    """Returns what a command printed and what became of it."""
    if done.timed_out:
        return "timed out"
    has_ended = [left(folder)] if (folder / PIPE).exists() else []
    return " ".join([*done.stdout.decode("utf-8", "replace").split(), *has_ended, done.exceeded]).strip()
