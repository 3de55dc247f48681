"""How many runs the worker's limit of open files carries, and the wait of a run until enough of them are free."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from ...shared import open_files
from ...shared.errors import Misconfigured
from ...shared.log import log

FILES_PER_RUN = 24
"""Open files of a run that works: its workspace, a command, two in the background, and its part of connections."""
MOST_FILES_PER_RUN = 64
"""The same with all commands in the background that a run may have."""
SPARE = 128
"""Open files of a worker without runs: connections to Redis and models, logs, and what copies a workspace."""
_TICK_SECONDS = 0.1


@dataclass(slots=True)
class OpenFiles:
    """The open files that this process may have, and the runs that share them."""

    limit: int
    concurrency: int
    """How many runs there may be at the same time."""
    _active: int = 0
    """Runs that have begun, without those that wait for others."""

    @classmethod
    def for_runs(cls, wanted: int) -> OpenFiles:
        """Returns what the limit of this process carries of the ``wanted`` runs. Raises Misconfigured for none."""
        limit = open_files.limit()
        if (most := (limit - SPARE) // FILES_PER_RUN) < 1:
            raise Misconfigured(
                f"this process may have {limit} open files, and a worker needs {SPARE + FILES_PER_RUN}: raise its "
                "limit (ulimit -n, LimitNOFILE of systemd, ulimits of a container)"
            )
        return cls(limit, min(wanted, most))

    @property
    def are_scarce(self) -> bool:
        """Whether runs with many commands can use all of them up."""
        return self.limit < SPARE + self.concurrency * MOST_FILES_PER_RUN

    @asynccontextmanager
    async def admitted(self, id: str) -> AsyncGenerator[None]:
        """Waits until another run can begin, which is the block. Until then another worker may claim it."""
        if not self._has_room():
            log.warning("%s waits until runs end: this worker has nearly all of its %d open files", id, self.limit)
        while not self._has_room():  # noqa: ASYNC110 - no event comes when a descriptor is closed
            await asyncio.sleep(_TICK_SECONDS)
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Lets another run begin, whatever is open, if all runs wait as this one does: it may be for that one."""
        self._active -= 1
        try:
            yield
        finally:
            self._active += 1

    def _has_room(self) -> bool:
        return not self.are_scarce or not self._active or now_open() + 2 * FILES_PER_RUN <= self.limit


def now_open() -> int:
    """Returns how many open files this process has."""
    with os.scandir("/proc/self/fd") as entries:
        return sum(1 for _ in entries)
