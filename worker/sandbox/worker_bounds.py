"""What the commands of all runs of one worker process may use together: a share of the machine or container."""

from __future__ import annotations

import asyncio
import math
import os
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Self

from ...shared.log import log
from ...shared.settings import SandboxSettings
from ..linux import machine
from ..linux.cgroup import Cgroup, NotDelegated, group_for_runs
from .bounds import RUN_PROCESSES, DiskLimit, Member, RunBounds, Write, of_shared_disk, of_shared_memory
from .usage import Usage, usages

_GROWTH = 1 << 20
"""Bytes on disk below which a run counts as not growing."""


class WorkerBounds:
    """The bounds of all runs. ``group`` is this process's own group, below which each run has one."""

    def __init__(self, limits: SandboxSettings, group: Cgroup | None = None) -> None:
        self.limits = limits
        self.memory = int(machine.memory_bytes() * limits.share)
        self.group = group
        available = machine.processors()
        self._processors = Counter(dict.fromkeys(available[: math.ceil(len(available) * limits.share)], 0))
        self._all_processors = len(available)
        self._runs: list[RunBounds] = []
        self._settling = False
        if group:
            group.limit(memory=self.memory, cpus=len(available) * limits.share)

    @classmethod
    def of_process(cls, limits: SandboxSettings) -> Self:
        """Returns those of a worker process, with control groups where one is delegated to it. Call it once."""
        try:
            return cls(limits, group_for_runs())
        except (NotDelegated, OSError) as error:
            log.info("commands are measured, because there are no control groups for them: %s", error)
            return cls(limits)

    def close(self) -> None:
        if self.group:
            self.group.remove()

    def run(
        self,
        folder: Path,
        report: Write = lambda sentence: None,
        limits: SandboxSettings | None = None,
        base: int | None = None,
    ) -> RunBounds:
        """Returns the bounds of a new run that may write to the directory. Raises OSError.

        ``report`` receives the limits for which commands in the background were killed. ``limits`` are those of the
        run's profile; default: those of the worker. ``base`` is what the directory takes, if that is known.
        """
        limits = limits or self.limits
        return self._run(limits, DiskLimit([folder], limits.disk_bytes, base=base), report)

    def set_up(self, folders: Sequence[Path], limits: SandboxSettings) -> RunBounds:
        """Returns those of a new set-up command. Raises OSError."""
        disk = DiskLimit(folders, limits.setup_disk_bytes, "sandbox.setup_disk_bytes", base=0)
        return self._run(limits, disk, lambda sentence: None)

    def leave(self, run: RunBounds) -> None:
        self._processors.subtract(run.processors)
        self._runs.remove(run)

    @property
    def room(self) -> int:
        """Bytes of memory that the commands of all runs may still take."""
        return self.memory - sum(run.memory for run in self._runs)

    def check(self) -> None:
        """Kills the largest command if all of them together take too much."""
        if self.room < 0 and not self.group and not self._settling:
            self._settling = True
            members = [member for run in self._runs for member in run.members]
            loop = asyncio.get_running_loop()
            measuring = loop.run_in_executor(None, usages, [member.init for member in members], 0)
            measuring.add_done_callback(partial(self._settle, members))
        self._check_disk()

    def _run(self, limits: SandboxSettings, disk: DiskLimit, report: Write) -> RunBounds:
        group = None
        if self.group:
            group = self.group.create(f"run-{os.urandom(6).hex()}")
            most = limits.processes * RUN_PROCESSES
            group.limit(memory=limits.memory_bytes, cpus=limits.cpus, processes=most)
            group.divide()
        run = RunBounds(self, limits, disk, group, [] if group else self._take_processors(limits.cpus), report)
        self._runs.append(run)
        return run

    def _take_processors(self, cpus: float) -> list[int]:
        """Returns the processors with the fewest runs; none if a run may use all that there are."""
        number = math.ceil(cpus)
        if number >= self._all_processors:
            return []
        taken = sorted(self._processors, key=lambda each: self._processors[each])[:number]
        self._processors.update(taken)
        return taken

    def _settle(self, members: Sequence[Member], measured: asyncio.Future[list[Usage]]) -> None:
        """Decides by exact numbers."""
        self._settling = False
        if measured.cancelled() or measured.exception():
            return
        found = [usage.memory for usage in measured.result()]
        if sum(found) > self.memory:
            members[found.index(max(found))].kill(of_shared_memory(sum(found), self.memory))

    def _check_disk(self) -> None:
        """Kills for growth since the last time only, as the files of what was killed are still there."""
        growing = [run for run in self._runs if run.members and run.added > run.tolerated + _GROWTH]
        if not growing:
            return
        largest, added = max(growing, key=lambda run: run.added), sum(run.added for run in self._runs)
        if added > self.limits.share * (largest.free + added):
            for run in self._runs:
                run.tolerated = run.added
            largest.kill_largest_writer(of_shared_disk(added, largest.free))
