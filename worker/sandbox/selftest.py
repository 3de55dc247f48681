"""The sandbox's self-test, run once per process: checks each guarantee on this machine."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...shared.errors import Misconfigured, ToolError
from ..linux.machine import exhausted
from . import environment
from .base import Sandbox
from .command import Command
from .environment import OFFLINE, VARIABLES

_REMEDY = (
    "Install bubblewrap (the system's package, or this project's extra `sandbox`); in a container, run the worker "
    "with the seccomp profile worker/sandbox/seccomp-worker.json and unmasked /proc (systempaths=unconfined). "
    "Ubuntu 23.10 and newer: sysctl kernel.apparmor_restrict_unprivileged_userns=0."
)
_KNOWN_VARIABLES = {*VARIABLES, *OFFLINE, "PATH", "PWD", "OLDPWD", "_", "SHLVL"}
_SECONDS = 20
_EXIT_CODE = 42
_MAX_PROCESSES = 16
_MAX_PROCESS_LIMIT = 256
_STANDARD_DESCRIPTORS = 4  # three streams and the one that lists them
# Every line is `name value`, with the shell's builtins where possible, so that only missing isolation fails a check.
_PROBE = r"""
yes() { "$@" 2>/dev/null && echo yes || echo no; }
echo env $(cat /proc/self/environ | tr '\0' '\n' | cut -d= -f1)
echo first_env $(tr '\0' '\n' </proc/1/environ | cut -d= -f1)
echo hidden $(ls -d /root /home /var /run /mnt /srv /etc/shadow 2>/dev/null)
echo core_pattern $(yes eval 'true >>/proc/sys/kernel/core_pattern')
echo root $(yes eval 'true >/probe')
echo usr $(yes eval 'true >/usr/probe')
echo net $(readlink /proc/self/ns/net)
echo links $(tail -n +3 /proc/net/dev | cut -d: -f1)
echo processes $(ls -d /proc/[0-9]* | wc -l)
echo descriptors $(ls /proc/self/fd | wc -l)
echo privileges $(grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status | cut -f2)
echo processes_limit $(ulimit -u 2>/dev/null || ulimit -p)
echo namespaces $(yes unshare --user true)
echo uid $(id -u)
echo done >/workspace/probe
mkfifo /workspace/alive
exit 42
"""
DAEMON = "setsid sh -c 'exec sleep 1000 <alive' & exec 3>alive; echo up"
"""Leaves a process that has left its shell's session, and that reads the pipe ``alive``."""


@dataclass(frozen=True, slots=True)
class SelfTestResult:
    """The bubblewrap that passed the self-test, or why none did."""

    bwrap: environment.Bwrap | None
    reason: str | None


class ClosableSandbox(Sandbox, Protocol):
    def close(self) -> None: ...


async def run_selftest(
    make: Callable[[Path, environment.Bwrap], ClosableSandbox], home: Path | None, bwraps: Iterable[environment.Bwrap]
) -> SelfTestResult:
    """Tests each bubblewrap in a temporary workspace below ``home``. Returns the first that passes every check."""
    reasons: list[str] = []
    for bwrap in bwraps:
        try:
            reason = await _test(make, bwrap, home)
        except (ToolError, Misconfigured, OSError) as error:
            if why := exhausted(error.__cause__ or error):
                return SelfTestResult(None, why)
            reason = str(error)
        if reason is None:
            return SelfTestResult(bwrap, None)
        reasons.append(f"{bwrap.program}: {reason}")
    return SelfTestResult(None, f"{'; '.join(reasons) or 'there is no bubblewrap'}. {_REMEDY}")


async def _test(
    make: Callable[[Path, environment.Bwrap], ClosableSandbox], bwrap: environment.Bwrap, home: Path | None
) -> str | None:
    folder, workspace = _create_workspace(home)
    try:
        with closing(make(workspace, bwrap)) as sandbox:
            return await _check_isolation(sandbox, workspace) or await _check_termination(sandbox, workspace)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _create_workspace(home: Path | None) -> tuple[Path, Path]:
    if home:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="selftest-", dir=home))
    workspace = folder / "files"
    workspace.mkdir()
    if owner := environment.owner():
        os.chown(workspace, *owner)
    return folder, workspace


async def _check_isolation(sandbox: Sandbox, workspace: Path) -> str | None:
    done = await sandbox.run(Command(["/bin/sh", "-c", _PROBE], timeout=_SECONDS))
    if done.exit_code != _EXIT_CODE:
        stderr = done.stderr.decode("utf-8", "replace").strip()[-500:]
        return f"a command that exits with {_EXIT_CODE} ended with exit code {done.exit_code}: {stderr}"
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    values = {name: value.split() for name, _, value in (line.partition(" ") for line in lines)}
    return _failed_checks(values, workspace)


def _failed_checks(values: dict[str, list[str]], workspace: Path) -> str | None:
    privileges = ["0000000000000000", "1", "2"]
    host_net = str(Path("/proc/self/ns/net").readlink())
    probe = workspace / "probe"
    checks = {
        "the worker's environment is hidden": values["first_env"] == [],
        "the environment holds only the given variables": set(values["env"]) <= _KNOWN_VARIABLES,
        "the host's home and state directories are hidden": values["hidden"] == [],
        "kernel settings cannot be written": values["core_pattern"] == ["no"],
        "the system cannot be written": values["root"] == values["usr"] == ["no"],
        "there is no network but its own loopback": values["net"] != [host_net] and values["links"] in ([], ["lo"]),
        "other processes are hidden": int(values["processes"][0]) < _MAX_PROCESSES,
        "no descriptor is inherited": int(values["descriptors"][0]) <= _STANDARD_DESCRIPTORS,
        "no privileges can be gained and system calls are filtered": values["privileges"] == privileges,
        "the number of processes is bounded": 0 < int(values["processes_limit"][0]) <= _MAX_PROCESS_LIMIT,
        "no namespaces can be created": values["namespaces"] == ["no"],
        "the user is unprivileged": values["uid"] == ["1000"],
        "the workspace can be written": probe.exists() and probe.read_bytes() == b"done\n",
        "its user is not root on the host either": probe.exists() and probe.stat().st_uid != 0,
    }
    failed = [check for check, passed in checks.items() if not passed]
    return f"it is not true that {' and that '.join(failed)}" if failed else None


async def _check_termination(sandbox: Sandbox, workspace: Path) -> str | None:
    """Cancels a command with a daemon; a pipe without a reader shows that the daemon has ended."""
    up = asyncio.Event()
    command = Command(["/bin/sh", "-c", f"{DAEMON}; sleep 1000"], timeout=_SECONDS)
    task = asyncio.ensure_future(sandbox.run(command, lambda _: up.set()))
    waiting = asyncio.ensure_future(up.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    task.cancel()
    await asyncio.wait([task])
    if has_reader(workspace / "alive"):
        return "it is not true that a killed command leaves no process"
    return None if up.is_set() else "a command with a daemon does not run"


def has_reader(pipe: Path) -> bool:
    """Whether a process still reads the pipe: that is known whatever the process did to hide."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        return error.errno not in (errno.ENXIO, errno.ENOENT)
    return True
