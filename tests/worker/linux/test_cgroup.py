"""Finding a delegated control group, and dividing it: with real ones where there are some, else with directories."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from deputize.worker.linux.cgroup import Cgroup, NotDelegated, group_for_runs
from tests.processes.ordinary_user import ORDINARY_UID
from tests.waiting import until_sync
from tests.worker.forked import in_child
from tests.worker.linux.delegation import directories, real_group


def test_a_delegated_group_is_divided_for_runs(tmp_path: Path) -> None:
    runs = group_for_runs(directories(tmp_path))
    base = tmp_path / "cgroups/user/session"
    assert runs.path == base / f"deputize-runs-{os.getpid()}"
    for group in (base, runs.path):
        assert (group / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


def test_a_worker_that_is_in_the_leaf_already_divides_the_group_above(tmp_path: Path) -> None:
    proc = directories(tmp_path)
    (proc / "self/cgroup").write_text("0::/user/session/deputize\n")
    assert group_for_runs(proc).path.parent == tmp_path / "cgroups/user/session"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda proc, group: (proc / "self/cgroup").write_text("4:memory:/x\n"), "no control groups of version 2"),
        (lambda proc, group: (proc / "self/mountinfo").write_text(""), "no control groups of version 2"),
        (lambda proc, group: (proc / "self/cgroup").unlink(), "/proc cannot be read"),
        (lambda proc, group: (group / "cgroup.controllers").write_text("pids"), "does not control cpu and memory"),
        (lambda proc, group: (group / "cgroup.subtree_control").unlink(), "is not this process's to write"),
        (lambda proc, group: (group / "cgroup.procs").write_text("1\n"), "also has processes of others, such as 1"),
    ],
)
def test_the_reason_why_there_is_none_is_named(
    change: Callable[[Path, Path], object], reason: str, tmp_path: Path
) -> None:
    proc = directories(tmp_path)
    change(proc, tmp_path / "cgroups/user/session")
    with pytest.raises(NotDelegated, match=reason):
        group_for_runs(proc)


def test_a_service_of_systemd_moves_also_the_processes_that_started_it(tmp_path: Path) -> None:
    proc, mount = directories(tmp_path, processes="1\n"), tmp_path / "cgroups/user"
    (mount / "session").rename(mount / "worker.service")
    (proc / "self/cgroup").write_text("0::/user/worker.service\n")
    group_for_runs(proc)
    assert (mount / "worker.service/deputize/cgroup.procs").read_text() == "1"


def test_limits_are_written_as_the_kernel_reads_them(tmp_path: Path) -> None:
    (tmp_path / "memory.swap.max").touch()
    group = Cgroup(tmp_path)
    group.limit(memory=1 << 30, cpus=1.5, processes=64)
    group.end_together()
    files = ("memory.max", "memory.swap.max", "cpu.max", "pids.max", "memory.oom.group")
    assert [(tmp_path / name).read_text() for name in files] == ["1073741824", "0", "150000 100000", "64", "1"]


def test_events_are_counted_by_their_whole_name(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("oom 3\noom_kill 2\noom_group_kill 1\n")
    group = Cgroup(tmp_path)
    assert [group.count("memory.events", name) for name in ("oom", "oom_kill", "other")] == [3, 2, 0]
    assert group.count("missing", "oom") == 0


@pytest.mark.parametrize("uid", [0, ORDINARY_UID])
def test_a_real_group_is_emptied_into_its_leaf_and_divided(uid: int) -> None:
    with real_group() as group:
        for path in (group.path, *group.path.glob("cgroup.*")):
            os.chown(path, uid, uid)

        def enter_and_divide() -> list[str]:
            group.entrance.write_text("0")
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            runs = group_for_runs()
            run = runs.create("one")
            run.limit(memory=1 << 26, cpus=0.5, processes=16)
            found = [(run.path / name).read_text().strip() for name in ("memory.max", "cpu.max", "pids.max")]
            runs.remove()
            return [own_group(), *found, str(runs.path.exists())]

        assert in_child(enter_and_divide) == ["deputize", "67108864", "50000 100000", "16", "False"]


def own_group() -> str:
    return Path("/proc/self/cgroup").read_text().splitlines()[-1].rpartition("/")[2]


def test_processes_of_others_are_not_moved() -> None:
    with real_group() as group, subprocess.Popen(["/bin/sleep", "1000"]) as other:
        group.entrance.write_text(str(other.pid))

        def divide() -> str:
            group.entrance.write_text("0")
            with pytest.raises(NotDelegated) as refused:
                group_for_runs()
            return str(refused.value)

        assert in_child(divide) == f"{group.path} also has processes of others, such as {other.pid}"
        assert other.pid in group.processes()
        other.kill()


def test_groups_of_a_worker_that_was_killed_are_removed_by_the_next_one() -> None:
    with real_group() as group:

        def divide() -> str:
            leaf = group.path / "deputize"
            (Cgroup(leaf) if leaf.exists() else group).entrance.write_text("0")
            runs = group_for_runs()
            runs.create("one")
            return str(runs.path)

        first = Path(in_child(divide))
        assert (first / "one").exists()
        second = Path(in_child(divide))
        assert (first.exists(), second.exists()) == (False, True)


def test_a_group_with_processes_stays_until_they_have_ended() -> None:
    with real_group() as group:
        child = group.create("one")
        enter = f'echo 0 >"{child.entrance}"; exec sleep 1000'
        with subprocess.Popen(["/bin/sh", "-c", enter]) as process:
            until_sync(lambda: child.processes() == [process.pid])
            child.remove()
            assert child.path.exists()
            process.kill()
        until_sync(lambda: child.remove() or not child.path.exists())
