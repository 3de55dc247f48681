"""Runs with bounds, and commands that hold memory."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from deputize.worker.sandbox.bounds import WorkerBounds
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.shells import BackgroundShell
from tests.waiting import until
from tests.worker.sandbox.sandboxes import bash, sandbox_over

MIB = 1 << 20
HOLD = 'python3 -c \'import signal; b = b"x" * ({} << 20); print("held", flush=True); signal.pause()\''


@contextmanager
def run_of(worker: WorkerBounds, folder: Path) -> Generator[tuple[Bubblewrap, list[str]]]:
    """A run's sandbox, and what its bounds report."""
    reported: list[str] = []
    with worker.run(folder, reported.append) as bounds, sandbox_over(folder, bounds=bounds) as sandbox:
        yield sandbox, reported


async def holding(sandbox: Bubblewrap, mebibytes: int) -> BackgroundShell:
    """A background command that holds so much memory."""
    shell = await sandbox.shells.start("hold", bash(HOLD.format(mebibytes)))
    await until(lambda: not shell.unread.empty)
    return shell
