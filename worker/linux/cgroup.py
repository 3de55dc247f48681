"""Control groups, version 2: one that is delegated to this process, its children, their limits and what they counted.

A process that may write a group's directory may divide it. A divided group must not have processes of its own, so the
worker moves them into a child, ``LEAF``, provided that none of others are among them.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .tree import descendants

CONTROLLERS = ("cpu", "memory", "pids")
LEAF = "deputize"
"""The child with the worker's own processes. A systemd unit may have it from the start (``DelegateSubgroup``)."""
_RUNS = "deputize-runs-"
_PERIOD = 100_000
_CONTROL_FILES = ("cgroup.procs", "cgroup.subtree_control")
_MOVES = 10
"""Attempts to move all processes: some may start others meanwhile."""


class NotDelegated(Exception):
    """Why this process has no group that it may divide."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One group, by its directory."""

    path: Path

    @property
    def entrance(self) -> Path:
        """The file by which a process that writes 0 into it enters the group."""
        return self.path / "cgroup.procs"

    def create(self, name: str) -> Cgroup:
        child = Cgroup(self.path / name)
        child.path.mkdir()
        return child

    def divide(self) -> None:
        """Lets its children have limits of their own. Raises OSError."""
        self._write("cgroup.subtree_control", " ".join(f"+{name}" for name in CONTROLLERS))

    def limit(self, *, memory: int, cpus: float | None = None, processes: int | None = None) -> None:
        """Bounds all of its processes together. Raises OSError."""
        self._write("memory.max", str(memory))
        if (self.path / "memory.swap.max").exists():
            self._write("memory.swap.max", "0")
        if cpus is not None:
            self._write("cpu.max", f"{round(cpus * _PERIOD)} {_PERIOD}")
        if processes is not None:
            self._write("pids.max", str(processes))

    def end_together(self) -> None:
        """Lets the kernel kill all processes of the group if it kills one of them for memory. Raises OSError."""
        self._write("memory.oom.group", "1")

    def count(self, file: str, event: str) -> int:
        """Returns how often something happened, such as ``oom_kill`` in ``memory.events``; 0 if that is not known."""
        with suppress(OSError):
            found = re.search(rf"^{event} (\d+)$", (self.path / file).read_text("ascii"), re.MULTILINE)
            return int(found[1]) if found else 0
        return 0

    def processes(self) -> list[int]:
        """Returns the pids in it, without those of its children; 0 for one of another pid namespace."""
        return [int(pid) for pid in self.entrance.read_text("ascii").split()]

    def remove(self) -> None:
        """Removes it with its children. One that still has processes stays, until a worker starts."""
        with suppress(OSError):
            for path in self.path.iterdir():
                if path.is_dir():
                    Cgroup(path).remove()
            self.path.rmdir()

    def _write(self, file: str, text: str) -> None:
        (self.path / file).write_text(text, "ascii")


def group_for_runs(proc: Path = Path("/proc")) -> Cgroup:
    """Returns a new group of this process, below which it may create one for each run.

    Raises NotDelegated with the reason where there is none. Call it once per process, before there are runs.
    """
    mount, own = _own_group(proc)
    base = _delegated(own)
    try:
        _make_room(base, alone=base.path == mount or base.path.name.endswith(".service"))
        base.divide()
        for path in base.path.glob(f"{_RUNS}*"):
            if not (proc / path.name.removeprefix(_RUNS)).exists():  # of a worker that was killed
                Cgroup(path).remove()
        runs = base.create(f"{_RUNS}{os.getpid()}")
        runs.divide()
    except OSError as error:
        raise NotDelegated(f"{base.path} cannot be divided: {error.strerror}") from None
    return runs


def _delegated(own: Path) -> Cgroup:
    base = own.parent if own.name == LEAF else own
    if not all(os.access(path, os.W_OK) for path in (base, *(base / name for name in _CONTROL_FILES))):
        raise NotDelegated(f"{base} is not this process's to write")
    has = set((base / "cgroup.controllers").read_text("ascii").split())
    if missing := [name for name in CONTROLLERS if name not in has]:
        raise NotDelegated(f"{base} does not control {' and '.join(missing)}")
    return Cgroup(base)


def _own_group(proc: Path) -> tuple[Path, Path]:
    """Returns the directory of all groups, and that of this process. Raises NotDelegated if there are none."""
    try:
        mounts = (proc / "self/mountinfo").read_text("utf-8", "replace").splitlines()
        groups = (proc / "self/cgroup").read_text("utf-8", "replace").splitlines()
    except OSError as error:
        raise NotDelegated(f"/proc cannot be read: {error.strerror}") from None
    mount = next((line.split()[4] for line in mounts if line.partition(" - ")[2].startswith("cgroup2 ")), None)
    group = next((line[3:] for line in groups if line.startswith("0::")), None)
    if mount is None or group is None:
        raise NotDelegated("there are no control groups of version 2")
    return Path(mount), Path(mount + group.rstrip("/"))


def _make_room(base: Cgroup, *, alone: bool) -> None:
    """Moves the processes of the group into its leaf.

    ``alone``: they all belong to one deployment, a container or a systemd service. Else raises NotDelegated if there
    are others than this process and what it has started.
    """
    is_root = not (base.path / "cgroup.type").exists()  # the only group that may have both children and processes
    if is_root or not base.processes():
        return
    own = {os.getpid(), *descendants(os.getpid())}
    if others := [pid for pid in base.processes() if pid not in own and not alone]:
        raise NotDelegated(f"{base.path} also has processes of others, such as {others[0]}")
    (base.path / LEAF).mkdir(exist_ok=True)
    for _ in range(_MOVES):
        for pid in filter(None, base.processes()):
            with suppress(ProcessLookupError):
                (base.path / LEAF / "cgroup.procs").write_text(str(pid), "ascii")
