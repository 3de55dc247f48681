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

from shared.errors import Misconfigured, ToolError
from worker.sandbox import environment
from worker.sandbox.base import Sandbox
from worker.sandbox.command import Command

_MEND = (
    "Install bubblewrap (the system's package, or this project's extra `sandbox`); in a container, run the worker "
    "with the seccomp profile worker/sandbox/seccomp-worker.json and unmasked /proc (systempaths=unconfined). "
    "Ubuntu 23.10 and newer: sysctl kernel.apparmor_restrict_unprivileged_userns=0."
)
_KNOWN_VARIABLES = {"PATH", "HOME", "USER", "LANG", "TERM", "PWD", "OLDPWD", "_", "SHLVL"}
_SECONDS = 20
_EXIT_CODE = 42
_FEW = 16
_STANDARD_DESCRIPTORS = 4  # three streams and the one that lists them
# Every line is `name answer`, with the shell's builtins where possible, so that only missing isolation fails a check.
_PROBE = r"""
yes() { "$@" 2>/dev/null && echo yes || echo no; }
echo env $(tr '\0' '\n' </proc/self/environ | cut -d= -f1)
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
_DAEMON = "setsid sh -c 'exec sleep 1000 <alive' & exec 3>alive; echo up; sleep 1000"


@dataclass(frozen=True, slots=True)
class Proof:
    """The bubblewrap that passed the self-test, or why none did."""

    bwrap: environment.Bwrap | None
    reason: str | None


class ClosableSandbox(Sandbox, Protocol):
    def close(self) -> None: ...


async def prove(
    make: Callable[[Path, environment.Bwrap], ClosableSandbox], home: Path | None, bwraps: Iterable[environment.Bwrap]
) -> Proof:
    """Tests each bubblewrap in a temporary workspace below ``home``. Returns the first that passes every check."""
    reasons: list[str] = []
    for bwrap in bwraps:
        if (reason := await _test(make, bwrap, home)) is None:
            return Proof(bwrap, None)
        reasons.append(f"{bwrap.program}: {reason}")
    return Proof(None, f"{'; '.join(reasons) or 'there is no bubblewrap'}. {_MEND}")


async def _test(
    make: Callable[[Path, environment.Bwrap], ClosableSandbox], bwrap: environment.Bwrap, home: Path | None
) -> str | None:
    folder, place = _throw_away(home)
    try:
        with closing(make(place, bwrap)) as sandbox:
            return await _check_isolation(sandbox, place) or await _death(sandbox, place)
    except (ToolError, Misconfigured, OSError) as error:
        return str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _throw_away(home: Path | None) -> tuple[Path, Path]:
    if home:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="selftest-", dir=home))
    place = folder / "files"
    place.mkdir()
    if owner := environment.owner():
        os.chown(place, *owner)
    return folder, place


async def _check_isolation(sandbox: Sandbox, place: Path) -> str | None:
    done = await sandbox.run(Command(["/bin/sh", "-c", _PROBE], timeout=_SECONDS))
    if done.exit_code != _EXIT_CODE:
        said = done.stderr.decode("utf-8", "replace").strip()[-500:]
        return f"a command that exits with {_EXIT_CODE} came out with {done.exit_code}: {said}"
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return _judge({name: answer.split() for name, _, answer in (line.partition(" ") for line in lines)}, place)


def _judge(said: dict[str, list[str]], place: Path) -> str | None:
    ours = str(Path("/proc/self/ns/net").readlink())
    probe = place / "probe"
    promises = {
        "the worker's environment is out of sight": said["first_env"] == [],
        "the environment holds only what was given": set(said["env"]) <= _KNOWN_VARIABLES,
        "the machine's homes and state are out of sight": said["hidden"] == [],
        "kernel settings cannot be written": said["core_pattern"] == ["no"],
        "the system cannot be written": said["root"] == said["usr"] == ["no"],
        "there is no network but a loopback of its own": said["net"] != [ours] and said["links"] in ([], ["lo"]),
        "other processes are out of sight": int(said["processes"][0]) < _FEW,
        "no descriptor leaks in": int(said["descriptors"][0]) <= _STANDARD_DESCRIPTORS,
        "no privilege can be had and calls are filtered": said["privileges"] == ["0000000000000000", "1", "2"],
        "the number of processes is bounded": said["processes_limit"] == ["256"],
        "no namespaces can be made": said["namespaces"] == ["no"],
        "the user is an ordinary one": said["uid"] == ["1000"],
        "the workspace can be written": probe.exists() and probe.read_bytes() == b"done\n",
        "its user is not root outside either": probe.exists() and probe.stat().st_uid != 0,
    }
    broken = [promise for promise, kept in promises.items() if not kept]
    return f"it does not hold that {' and that '.join(broken)}" if broken else None


async def _death(sandbox: Sandbox, place: Path) -> str | None:
    """Cancels a command with a daemon; a pipe without a reader shows that the daemon has ended."""
    up = asyncio.Event()
    command = Command(["/bin/sh", "-c", _DAEMON], timeout=_SECONDS)
    task = asyncio.ensure_future(sandbox.run(command, lambda _: up.set()))
    waiting = asyncio.ensure_future(up.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    task.cancel()
    await asyncio.wait([task])
    try:
        os.close(os.open(place / "alive", os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        return None if error.errno == errno.ENXIO and up.is_set() else "a command with a daemon does not run"
    return "it does not hold that a killed command leaves no process"
