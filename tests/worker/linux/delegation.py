"""Control groups for tests: a real one where this machine has one to divide, and directories that look like one."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deputize.worker.linux.cgroup import CONTROLLERS, Cgroup
from tests.waiting import until_sync


@contextmanager
def real_group() -> Generator[Cgroup]:
    """A group of its own with all controllers; skips where the machine has none (only root can make one)."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text("utf-8").splitlines())
    mounted = (Path(fields[1]) for fields in mounts if fields[2] == "cgroup2")
    if os.geteuid() != 0 or (parent := next(filter(_has_controllers, mounted), None)) is None:
        pytest.skip("SKIPPED: there are no control groups of version 2 here that root can divide")
    Cgroup(parent).divide()
    group = Cgroup(parent).create(f"test-{os.getpid()}")
    try:
        yield group
    finally:
        until_sync(lambda: group.remove() or not group.path.exists())


def _has_controllers(mount: Path) -> bool:
    return {*CONTROLLERS} <= {*(mount / "cgroup.controllers").read_text("ascii").split()}


def directories(tmp_path: Path, *, controllers: str = "cpuset cpu memory pids", processes: str = "") -> Path:
    """A /proc whose process is in a group that is a plain directory."""
    proc, mount = tmp_path / "proc", tmp_path / "cgroups"
    (proc / "self").mkdir(parents=True)
    group = mount / "user/session"
    group.mkdir(parents=True)
    (proc / "self/mountinfo").write_text(
        "21 1 0:20 / /proc rw - proc proc rw\n"
        f"30 1 0:25 / {mount}/v1 rw - cgroup cgroup rw,memory\n"
        f"31 1 0:26 / {mount} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
    )
    (proc / "self/cgroup").write_text("4:memory:/elsewhere\n0::/user/session\n")
    (group / "cgroup.controllers").write_text(controllers)
    (group / "cgroup.procs").write_text(processes)
    for name in ("cgroup.subtree_control", "cgroup.type"):
        (group / name).touch()
    return proc
