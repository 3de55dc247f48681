"""Which limits of a run hold on this machine: each is tried with a command that exceeds a small one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

from ...shared.errors import ToolError
from ...shared.settings import SandboxSettings
from ..linux import machine
from .base import Sandbox
from .bounds import RunBounds
from .bubblewrap import Bubblewrap
from .command import Command, Completed
from .selftest import DAEMON, has_reader
from .worker_bounds import WorkerBounds

LIMITS = SandboxSettings(memory_bytes=64 << 20, disk_bytes=1 << 20, processes=16, cpus=1)
SECONDS = 15
_HOLD_MEMORY = "dd if=/dev/zero bs=100M count=1 2>/dev/null | sleep 1000"
_FILL_DISK = "head -c 9M /dev/zero >a; exec sleep 1000"
_FORK = "i=0; while [ $i -lt 64 ]; do sleep 1000 & i=$((i+1)); done 2>/dev/null; echo all"
_ONE_PROCESSOR = "100000 100000"


class Make(Protocol):
    """Makes a sandbox over a directory, within bounds."""

    def __call__(self, workspace: Path, *, bounds: RunBounds) -> Bubblewrap: ...


async def try_limits(
    new_folder: Callable[[str], Path],
    limits: SandboxSettings = LIMITS,
    make: Make = Bubblewrap,
    seconds: float = SECONDS,
) -> tuple[list[str], bool]:
    """Returns the limits that do not hold, and whether it is control groups that bound memory.

    ``new_folder`` returns a new directory for commands. Blocks no longer than ``seconds`` for each, all at once.
    """
    bounds = await asyncio.to_thread(WorkerBounds.of_process, limits)
    tries: dict[str, Callable[[Sandbox, Path], Awaitable[bool]]] = {
        "memory is not bounded": partial(_is_exceeded, "memory", _HOLD_MEMORY, seconds),
        "disk is not bounded": partial(_is_exceeded, "disk", _FILL_DISK, seconds),
        "processes are not bounded": partial(is_refused, seconds),
        "processors are not bounded": partial(_is_tied, bounds, seconds),
        "a process went on after its command": partial(has_ended, seconds),
    }

    async def tried(number: int, holds: Callable[[Sandbox, Path], Awaitable[bool]]) -> bool:
        with ExitStack() as opened:
            folder = await asyncio.to_thread(new_folder, f"limit-{number}")
            run = opened.enter_context(bounds.run(folder))
            return await holds(opened.enter_context(make(folder, bounds=run)), folder)

    try:
        async with asyncio.TaskGroup() as together:
            tasks = [together.create_task(tried(number, holds)) for number, holds in enumerate(tries.values())]
    except* ToolError as group:
        raise group.exceptions[0] from None
    finally:
        bounds.close()
    return [problem for problem, task in zip(tries, tasks, strict=True) if not task.result()], bounds.group is not None


async def _run(sandbox: Sandbox, script: str, seconds: float) -> Completed:
    return await sandbox.run(Command(["sh", "-c", script], seconds))


async def _is_exceeded(name: str, script: str, seconds: float, sandbox: Sandbox, folder: Path) -> bool:
    return f"sandbox.{name}_bytes" in (await _run(sandbox, script, seconds)).exceeded


async def is_refused(seconds: float, sandbox: Sandbox, folder: Path) -> bool:
    """Whether a command is refused more processes than it may have. A command that ran out of time shows neither."""
    done = await _run(sandbox, _FORK, seconds)
    return not done.timed_out and b"all" not in done.stdout


async def _is_tied(bounds: WorkerBounds, seconds: float, sandbox: Sandbox, folder: Path) -> bool:
    if bounds.group:
        return {path.read_text().strip() for path in bounds.group.path.glob("run-*/cpu.max")} == {_ONE_PROCESSOR}
    return len(machine.processors()) == 1 or (await _run(sandbox, "nproc", seconds)).stdout.strip() == b"1"


async def has_ended(seconds: float, sandbox: Sandbox, folder: Path) -> bool:
    """Whether what a command left behind ends with it."""
    done = await _run(sandbox, f"mkfifo alive; {DAEMON}", seconds)
    return b"up" in done.stdout and not has_reader(folder / "alive")
