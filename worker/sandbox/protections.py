"""Which protections of commands work on this machine: each is tried with a command, none is concluded from versions.

A result lists by promise what was found wrong; it is empty if all is well.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ...shared.errors import ErrorType, ToolError
from .base import Sandbox
from .bubblewrap import Bubblewrap
from .canaries import ELSEWHERE, Canaries
from .command import Command
from .egress import PORT, Egress
from .environment import SYSTEM_PATH, program, program_mounts
from .project_tools import NO_TOOLS, ProjectTools

SECONDS = 15
_PROBE = Path(__file__).with_name("probe.py")
_NAMESPACES = ("user", "pid", "mnt", "net", "ipc")
_CALLS = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "pivot_root": (155, 41),
    "move_mount": (429, 429),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "pidfd_getfd": (438, 438),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
}
"""System calls that the kernel must refuse, with their numbers on x86-64 and on aarch64."""
_FAMILIES = {"VSOCK": 40, "ALG": 38, "PACKET": 17, "BLUETOOTH": 31, "KEY": 15}
_BY_PROGRAMS = r"""
[ "$(grep '^Seccomp:' /proc/self/status | cut -f2)" = 2 ] || echo 'a program without a filter of system calls'
went() { "$@" >/dev/null 2>&1 && echo "$*"; }
went unshare --user true
went nsenter --target 1 --mount true
went mount -t tmpfs none /tmp
"""
Problems = list[str]


class Make(Protocol):
    """Makes a sandbox over a directory; a test passes one that lets something through."""

    def __call__(self, workspace: Path, *, tools: ProjectTools = ..., reach: Egress | None = ...) -> Bubblewrap: ...


@dataclass(frozen=True, slots=True)
class Tried:
    """What commands found that they must not find, by promise, and the names of their variables."""

    problems: Mapping[str, Problems]
    variables: list[str] = field(default_factory=list[str])
    reached: list[str] = field(default_factory=list[str])
    """The servers that a process of this machine reached, and no command."""


async def try_isolation(
    canaries: Canaries,
    servers: Iterable[list[Any]] = (),
    secrets: Iterable[str] = (),
    tools: ProjectTools = NO_TOOLS,
    make: Make = Bubblewrap,
) -> Tried:
    """Looks for canaries and secrets, and tries networks and system calls, inside a sandbox and, to compare, outside.

    ``servers`` are further ones of this machine. Raises ToolError if commands cannot be run.
    """
    servers = [*canaries.servers, *servers]
    paths = [str(path) for path in canaries.paths]
    outside = {"paths": paths, "addresses": servers}
    inside = {
        **outside,
        "everyone": True,
        "names": [canaries.name],
        "addresses": [*servers, *ELSEWHERE],
        "calls": {name: numbers[os.uname().machine == "aarch64"] for name, numbers in _CALLS.items()},
        "families": _FAMILIES,
    }
    with make(canaries.workspace("isolation"), tools=tools) as sandbox:
        control, found, refused, theirs = await asyncio.gather(
            _outside(outside),
            probe(sandbox, inside),
            _output(sandbox, _BY_PROGRAMS),
            _output(sandbox, f"readlink {' '.join(f'/proc/self/ns/{name}' for name in _NAMESPACES)}"),
        )
    problems = _found_by_commands(found, canaries, secrets)
    for name, missing in _missed_by_control(control, canaries).items():
        problems[name] += missing
    problems["kernel"] += [f"{line} was not refused" for line in refused.splitlines()]
    problems["kernel"] += _shared_namespaces(theirs.split())
    names = sorted({line.partition("=")[0] for line in found["environ"].split("\0") if "=" in line})
    return Tried(problems, names, control["reached"])


def _found_by_commands(found: Mapping[str, Any], canaries: Canaries, secrets: Iterable[str]) -> dict[str, Problems]:
    private, opened = str(canaries.private.parent), found["files"]
    theirs = [path for path, held in opened.items() if canaries.values[canaries.private] in held or private in path]
    of_worker = [f"a command opened {path}" for path in theirs]
    if found["environments"] or any(secret in found["environ"] for secret in secrets):
        of_worker.append("an environment that a command can read holds a variable of the worker")
    if found["memory"]:
        of_worker.append("memory that a command can read holds a variable of the worker")
    reached = [f"a command reached {name}" for name in found["reached"]]
    return {
        "secrets": of_worker,
        "files": [f"a command opened {path}" for path in opened if path not in theirs] + _of_redis(reached),
        "network": reached,
        "kernel": [f"the system call {name} was not refused" for name in found["calls"]]
        + [f"a socket of the family {name} was not refused" for name in found["families"]],
    }


def _of_redis(reached: Iterable[str]) -> Problems:
    return [sentence for sentence in reached if "Redis" in sentence]


def _missed_by_control(found: Mapping[str, Any], canaries: Canaries) -> dict[str, Problems]:
    """Returns what the same program did not find outside of a sandbox: what is blind proves nothing."""
    seen = {canary for held in found["files"].values() for canary in held}
    blind = "nothing is proven: a program outside of the sandbox did not find"
    checks = {
        "secrets": {
            "the variable in its environment": found["environments"],
            "the variable in its memory": found["memory"],
            "the private file": canaries.values[canaries.private] in seen,
        },
        "files": {"the file of another run": canaries.values[canaries.neighbour] in seen},
        "network": {name: name in found["reached"] for name, *_ in canaries.servers},
    }
    return {name: [f"{blind} {what}" for what, is_seen in each.items() if not is_seen] for name, each in checks.items()}


def _shared_namespaces(theirs: list[str]) -> Problems:
    ours = {os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES}  # noqa: PTH115 - never blocks
    if len(theirs) == len(_NAMESPACES) and not ours & {*theirs}:
        return []
    return [f"commands do not have {', '.join(_NAMESPACES)} namespaces of their own"]


async def try_egress(
    canaries: Canaries, reach: Egress, allowed: str, others: list[str], make: Make = Bubblewrap
) -> Problems:
    """Asks the proxy of commands for a URL that is allowed, and for others. Raises ToolError."""
    with make(canaries.workspace("egress"), reach=reach) as sandbox:
        first, *rest = (await probe(sandbox, {"proxy": PORT, "urls": [allowed, *others]}))["answers"]
    missed = [] if first.startswith("HTTP/1.1 200") else [f"a command did not reach an allowed host: {first}"]
    refused = ("HTTP/1.1 403", "HTTP/1.1 502")
    reached = [url for url, line in zip(others, rest, strict=True) if not line.startswith(refused)]
    return [*missed, *(f"a command reached {url}, which is not allowed" for url in reached)]


async def probe(sandbox: Sandbox, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a command finds. Raises ToolError if the sandbox has no Python to look with."""
    python = program("python3", program_mounts()) or "python3"
    done = await sandbox.run(Command([python, "-I", "-S", "-c", _PROBE.read_text("utf-8"), json.dumps(asked)], SECONDS))
    return _parsed(done.stdout, done.stderr)


async def _outside(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Runs the same program as a child of this process, with its environment."""
    process = await asyncio.create_subprocess_exec(
        *(shutil.which("python3", path=SYSTEM_PATH) or sys.executable, "-I", "-S", "-c"),
        *(_PROBE.read_text("utf-8"), json.dumps(asked)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        return _parsed(*await process.communicate())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _parsed(output: bytes, errors: bytes) -> dict[str, Any]:
    try:
        return json.loads(output)
    except ValueError:
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ToolError(ErrorType.EXECUTION_FAILED, f"what looks around failed: {last}") from None


async def _output(sandbox: Sandbox, script: str) -> str:
    return (await sandbox.run(Command(["sh", "-c", script], SECONDS))).stdout.decode("utf-8", "replace").strip()
