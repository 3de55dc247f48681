"""What the sandboxes of one run may use together: its commands, in the foreground and background, and its servers.

All runs of one worker process together may use a share of the machine or container.

Control groups bound memory, processors and processes exactly, where one is delegated to the worker. Elsewhere a run is
tied to as many processors as it may use, and its processes are measured, the more often the closer they are to a
limit. Disk is measured everywhere, because no file system bounds a directory for an ordinary user.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Self

from ...shared.errors import ErrorType, ToolError
from ...shared.log import log
from ...shared.settings import SandboxSettings
from ...shared.text import clip
from ..linux import system
from ..linux.cgroup import Cgroup, NotDelegated, group_for_runs
from .disk_room import Room
from .environment import system_program
from .full_disk import FullDisk
from .growth import Growth
from .process import Process
from .usage import Usage, disk_bytes, size, usages, written_bytes

RUN_PROCESSES = 4
"""Times the processes of one command."""
_FASTEST = 4 << 30
"""Bytes per second that processes are assumed to take at most."""
_SHORTEST, _LONGEST = 0.05, 1.0
"""Seconds between two measurements."""
_DISK_SHORTEST = 0.2
_DISK_SHARE = 20
"""Disk is measured for at most one part in so many of the time."""
_ENTER = 'echo 0 >"$0" && exec "$@"'
Write = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DiskLimit:
    """How much the directories may take together with /tmp, and by which setting."""

    folders: Sequence[Path]
    max_bytes: int
    setting: str
    base: int | None
    """What the directories take at the begin; None: it is measured."""


class Member:
    """One sandbox of a run: a command or a server."""

    def __init__(self, bounds: RunBounds, prefix: list[str], group: Cgroup | None) -> None:
        self.prefix = prefix
        """What comes before the arguments of the sandbox's first program."""
        self.usage = Usage()
        self.exceeded = ""
        """The limit for which it was killed, as a sentence, or ""."""
        self._bounds = bounds
        self._group = group
        self._process: Process | None = None
        self._write: Write = lambda _: None

    @property
    def init(self) -> int:
        """The first process in the sandbox; 0 until it is set up, and after its end."""
        return self._process.init_pid if self._process and not self._process.ended.done() else 0

    def watch(self, process: Process, write: Write) -> None:
        """Bounds the process. ``write`` receives a line about a limit for which it is killed."""
        self._process = process
        self._write = write
        process.ended.add_done_callback(lambda _: self._leave())
        self._bounds.add(self)

    def kill(self, why: str) -> None:
        """Kills it for the limit that the sentence names. Of several that it exceeds until its end the first counts."""
        if self._process and not self._process.ended.done():
            if not self.exceeded:
                self._explain(why)
            self._process.kill()

    def report(self, command: str) -> None:
        """Reports the limit for which it was killed, if it was, where no result of a call states it."""
        if self.exceeded:
            self._bounds.report(f"{clip(' '.join(command.split()), 60)}: {self.exceeded}")

    def discard_unused(self) -> None:
        """Removes what was made for a process, if none could be started."""
        if self._group and not self._process:
            self._group.remove()

    def _explain(self, why: str) -> None:
        self.exceeded = why
        self._write(f"[killed: {why}]\n")

    def _leave(self) -> None:
        if self._group and not self.exceeded and self._group.count("memory.events", "oom_kill"):
            self._explain(self._bounds.why_kernel_kills())
        self._bounds.remove(self)
        if self._group:
            self._group.remove()


class RunBounds:
    """The bounds of one run. ``limits`` also has those that each of its sandboxes has.

    Where the directories of ``disk`` take more than they may at the begin, they may not grow. ``group`` is the run's
    own one, ``processors`` those to which its processes are tied. ``report`` receives the limits for which commands in
    the background were killed.
    """

    def __init__(
        self,
        whole: WorkerBounds,
        limits: SandboxSettings,
        disk: DiskLimit,
        group: Cgroup | None,
        processors: list[int],
        report: Write,
    ) -> None:
        self.limits = limits
        self.report = report
        self.memory = 0
        """Bytes in use, as far as was measured."""
        self.growth = Growth(disk.folders[0], whole.limits.share, whole.growths, self._measured_growth)
        self.processors = processors
        self._whole = whole
        self._disk, self._full_disk = disk, FullDisk(disk.folders[0])
        self._base: asyncio.Future[int] | None = None
        self.all_members: list[Member] = []
        """Also those that are not set up yet."""
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._measuring = self._closed = False
        self._disk_due = 0.0
        self._group = group
        self._kills = 0

    def close(self) -> None:
        """Ends watching; its sandboxes must have ended."""
        if not self._closed:
            self._closed = True
            self._whole.runs.remove(self)
            if self._timer:
                self._timer.cancel()
            self.growth.close()
            if self._group:
                self._group.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def members(self) -> list[Member]:
        """Those that run."""
        return [member for member in self.all_members if member.init]

    def begin(self) -> asyncio.Future[int]:
        """Returns what the directories take before the first command. Measuring it begins with the first call."""
        if self._base is None:
            loop = asyncio.get_running_loop()
            if self._disk.base is None:
                self._base = loop.run_in_executor(None, disk_bytes, self._disk.folders)
            else:
                self._base = loop.create_future()
                self._base.set_result(self._disk.base)
        return self._base

    async def most_on_disk(self) -> int:
        """Returns how many bytes the directories may take."""
        return max(self._disk.max_bytes, await asyncio.shield(self.begin()))

    async def join(self) -> Member:
        """Returns a member for a sandbox that is about to be started. Raises ToolError if it cannot be bounded."""
        await asyncio.shield(self.begin())
        await self.growth.cleared()
        await self.until_room()
        if self._group is None:
            tied = [system_program("taskset"), "--cpu-list", ",".join(map(str, self.processors))]
            return Member(self, tied if self.processors else [], None)
        try:
            group = self._group.create(str(next(self._numbers)))
            group.end_together()
        except OSError as error:
            raise ToolError(ErrorType.SANDBOX_UNAVAILABLE, f"the command cannot be bounded: {error}") from None
        return Member(self, ["/bin/sh", "-c", _ENTER, str(group.entrance)], group)

    async def until_room(self) -> bool:
        """Waits while the disk is full, as another run may have filled it for a moment. Returns whether it was."""
        return await self._full_disk.until_room()

    def add(self, member: Member) -> None:
        self.all_members.append(member)
        self._disk_due = min(self._disk_due, time.monotonic() + _DISK_SHORTEST)
        if self._timer:
            self._timer.cancel()
        self._measure_in(_SHORTEST)

    def remove(self, member: Member) -> None:
        """Takes the end of a member, whose files may have filled the disk."""
        self.all_members.remove(member)
        if not self._closed:
            self.growth.begin_check()

    def why_kernel_kills(self) -> str:
        """Returns the limit for which the kernel has killed a member."""
        before, self._kills = self._kills, self._group.count("memory.events.local", "oom") if self._group else 0
        return of_memory(None, self.limits) if self._kills > before else of_shared_memory(None, self._whole.memory)

    def kill_largest_writer(self, why: str) -> None:
        written = [written_bytes(member.init) + member.usage.tmp for member in self.members]
        if written:
            self.members[written.index(max(written))].kill(why)

    def _measure_in(self, seconds: float) -> None:
        if self.all_members and not self._measuring and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._measure)

    def _measure(self) -> None:
        self._timer, self._measuring = None, True
        members, now = self.members, time.monotonic()
        folders = self._disk.folders if now >= self._disk_due else ()
        inits = [member.init for member in members]

        def measured() -> tuple[list[Usage], tuple[int, Room, int] | None]:
            found = usages(inits, self.limits.memory_bytes)
            if not folders:
                return found, None
            room = Room.of(folders[0])
            return found, (disk_bytes(folders, inits), room, self.growth.count_files(room))

        measuring = asyncio.get_running_loop().run_in_executor(None, measured)
        measuring.add_done_callback(partial(self._decide, members, now))

    def _decide(
        self,
        members: Sequence[Member],
        since: float,
        measured: asyncio.Future[tuple[list[Usage], tuple[int, Room, int] | None]],
    ) -> None:
        self._measuring = False
        if measured.cancelled():
            return
        error = measured.exception()  # asked for in every case, else asyncio reports it
        if self._closed:
            return
        if error:
            log.error("the commands of a run could not be measured", exc_info=error)
            self._measure_in(_LONGEST)
            return
        found, disk = measured.result()
        for member, usage in zip(members, found, strict=True):
            member.usage = usage
        self.memory = sum(usage.memory for usage in found)
        if members and not self._group:
            self._check_memory(members)
        if disk and members:
            taken, room, files = disk
            self.growth.note(taken - self._taken_before, room, files)
            self._check_disk(taken, since)
        self._whole.check()
        room = min(self.limits.memory_bytes - self.memory, self._whole.room)
        self._measure_in(min(max(room / _FASTEST, _SHORTEST), _LONGEST))

    def _check_memory(self, members: Sequence[Member]) -> None:
        processes, most = sum(member.usage.processes for member in members), self.limits.processes * RUN_PROCESSES
        if self.memory > self.limits.memory_bytes:
            max(members, key=lambda member: member.usage.memory).kill(of_memory(self.memory, self.limits))
        elif processes > most:
            why = f"this run had {processes} processes and threads, and may have {most} (four times sandbox.processes)"
            max(members, key=lambda member: member.usage.processes).kill(why)

    def _check_disk(self, taken: int, since: float) -> None:
        most = max(self._disk.max_bytes, self._taken_before)
        whole = taken + sum(member.usage.tmp for member in self.members)
        if whole > most:
            limit = f"{size(self._disk.max_bytes)} ({self._disk.setting})"
            why = f"the files of this run and its /tmp take {size(whole)}, and the limit is {limit}"
            self.kill_largest_writer(why)
        now = time.monotonic()
        room = min((most - whole) / _FASTEST, _LONGEST)
        self._disk_due = now + max(room, _DISK_SHORTEST, (now - since) * _DISK_SHARE)

    @property
    def _taken_before(self) -> int:
        return self._base.result() if self._base else 0

    def _measured_growth(self) -> int:
        return disk_bytes(self._disk.folders, [member.init for member in self.members]) - self._taken_before


class WorkerBounds:
    """The bounds of all runs. ``group`` is this process's own group, below which each run has one."""

    def __init__(self, limits: SandboxSettings, group: Cgroup | None = None) -> None:
        self.limits = limits
        self.memory = int(system.memory_bytes() * limits.share)
        self.group = group
        available = system.processors()
        self._processors = available[: math.ceil(len(available) * limits.share)]
        self._all_processors = len(available)
        self.runs: list[RunBounds] = []
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
        further: Sequence[Path | None] = (),
    ) -> RunBounds:
        """Returns the bounds of a new run that may write to the directory and to the ``further`` ones. Raises OSError.

        ``report`` receives the limits for which commands in the background were killed. ``limits`` are those of the
        run's profile; default: those of the worker. ``base`` is what the directory takes, if that is known.
        """
        limits = limits or self.limits
        folders = [folder, *filter(None, further)]
        return self._run(limits, DiskLimit(folders, limits.disk_bytes, "sandbox.disk_bytes", base), report)

    def set_up(
        self, folders: Sequence[Path], limits: SandboxSettings, setting: str = "sandbox.setup_disk_bytes"
    ) -> RunBounds:
        """Returns those of a new set-up command; ``setting`` is where its disk limit stands. Raises OSError."""
        return self._run(limits, DiskLimit(folders, limits.setup_disk_bytes, setting, 0))

    @property
    def room(self) -> int:
        """Bytes of memory that the commands of all runs may still take."""
        return self.memory - sum(run.memory for run in self.runs)

    def growths(self) -> list[Growth]:
        return [run.growth for run in self.runs]

    def check(self) -> None:
        """Kills the largest command if all of them together take too much."""
        if self.room < 0 and not self.group and not self._settling:
            self._settling = True
            members = [member for run in self.runs for member in run.members]
            loop = asyncio.get_running_loop()
            measuring = loop.run_in_executor(None, usages, [member.init for member in members], 0)
            measuring.add_done_callback(partial(self._settle, members))
        self._check_disk()

    def _run(self, limits: SandboxSettings, disk: DiskLimit, report: Write = lambda sentence: None) -> RunBounds:
        group = None
        if self.group:
            group = self.group.create(f"run-{os.urandom(6).hex()}")
            most = limits.processes * RUN_PROCESSES
            group.limit(memory=limits.memory_bytes, cpus=limits.cpus, processes=most)
            group.divide()
        number, taken = math.ceil(limits.cpus), list[int]()
        if not group and number < self._all_processors:
            load = Counter(each for run in self.runs for each in run.processors)
            taken = sorted(self._processors, key=lambda each: load[each])[:number]
        run = RunBounds(self, limits, disk, group, taken, report)
        self.runs.append(run)
        return run

    def _settle(self, members: Sequence[Member], measured: asyncio.Future[list[Usage]]) -> None:
        """Decides by exact numbers."""
        self._settling = False
        if measured.cancelled() or measured.exception():
            return
        found = [usage.memory for usage in measured.result()]
        if sum(found) > self.memory:
            members[found.index(max(found))].kill(of_shared_memory(sum(found), self.memory))

    def _check_disk(self) -> None:
        """Kills for growth since the last time only, as the files of what was killed are still there for a moment."""
        running = [run for run in self.runs if run.members]
        if growing := [run for run in running if run.growth.is_growing]:
            largest = max(growing, key=lambda run: run.growth.added)
            if largest.growth.surplus() > 0:
                for run in self.runs:
                    run.growth.tolerated = run.growth.added
                added, free = sum(run.growth.added for run in self.runs), largest.growth.room.free
                largest.kill_largest_writer(
                    f"the runs of this worker have added {size(added)} to their files, and {size(free)} of the "
                    "disk are left, less than sandbox.share leaves to others; this run has added the most"
                )
        if making := [run for run in running if run.growth.makes_files]:
            most = max(making, key=lambda run: run.growth.files)
            why = f"its disk takes only {most.growth.room.files} more files, and this run has made {most.growth.files}"
            most.kill_largest_writer(why)


def of_memory(used: int | None, limits: SandboxSettings) -> str:
    """``used``: None where the kernel has killed it."""
    took = "wanted more memory together than the limit" if used is None else f"used {size(used)} of memory together"
    most = size(limits.memory_bytes)
    return f"the processes of this run {took}, and the limit is {most} (sandbox.memory_bytes); this one had the most"


def of_shared_memory(used: int | None, most: int) -> str:
    """The limit of all runs of a worker."""
    took = "wanted more memory" if used is None else f"used {size(used)} of memory"
    may = f"may have {size(most)} (sandbox.share)"
    return f"the commands of all runs of this worker {took}, and {may}; this one had the most"
