"""Which protections of commands work on this machine: each is tried with a command, none is concluded from versions."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deputize.shared.settings import SandboxSettings
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.command import Command
from deputize.worker.sandbox.environment import owner
from deputize.worker.sandbox.worker_bounds import WorkerBounds

_SECONDS = 30
_NAMESPACES = ("user", "pid", "mnt", "net", "ipc")
_LIMITS = SandboxSettings(memory_bytes=64 << 20, disk_bytes=1 << 20)
_HOLD_MEMORY = "(head -c 200M /dev/zero; exec sleep 1000) | tail -c 200M"
_FILL_DISK = "head -c 9M /dev/zero >a; exec sleep 1000"
_SECCOMP = "grep '^Seccomp:' /proc/self/status | cut -f2; unshare --user true 2>/dev/null || echo refused"


async def try_protections() -> dict[str, Any]:
    """Returns by protection whether it works; ``groups``: whether it is control groups that bound memory."""
    bounds = await asyncio.to_thread(WorkerBounds.of_process, _LIMITS)
    try:
        with ExitStack() as opened:
            folder = Path(opened.enter_context(TemporaryDirectory(prefix="deputize-")))
            if ids := owner():
                os.chown(folder, *ids)
            run = opened.enter_context(bounds.run(folder))
            sandbox = opened.enter_context(Bubblewrap(folder, bounds=run))
            return {**await _try_isolation(sandbox), **await _try_limits(sandbox), "groups": bounds.group is not None}
    finally:
        bounds.close()


async def _try_isolation(sandbox: Bubblewrap) -> dict[str, bool]:
    ours = [os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES]  # noqa: PTH115 - never blocks
    links = " ".join(f"/proc/self/ns/{name}" for name in _NAMESPACES)
    theirs = (await _output(sandbox, f"readlink {links}")).split()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"bash -c '>/dev/tcp/127.0.0.1/{port}' 2>/dev/null && echo reached; bash -c 'echo tried'"
        reached = await _output(sandbox, script)
    return {
        "namespaces": len(theirs) == len(ours) and not {*ours} & {*theirs},
        "seccomp": (await _output(sandbox, _SECCOMP)).split() == ["2", "refused"],
        "egress": reached == "tried",
    }


async def _try_limits(sandbox: Bubblewrap) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for name, script in (("memory", _HOLD_MEMORY), ("disk", _FILL_DISK)):
        done = await sandbox.run(Command(["sh", "-c", script], _SECONDS))
        found[name] = f"sandbox.{name}_bytes" in done.exceeded
    return found


async def _output(sandbox: Bubblewrap, script: str) -> str:
    return (await sandbox.run(Command(["sh", "-c", script], _SECONDS))).stdout.decode("utf-8", "replace").strip()
