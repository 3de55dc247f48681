"""Runs in control groups: what the kernel bounds, and that its kills are named. Skipped where there are none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deputize.shared.settings import SandboxSettings
from deputize.worker.linux.cgroup import Cgroup
from deputize.worker.sandbox.bounds import WorkerBounds
from tests.waiting import until
from tests.worker.linux.delegation import real_group
from tests.worker.sandbox.bounded import HOLD, MIB, holding, run_of
from tests.worker.sandbox.sandboxes import bash, said, sandbox_over

LIMITS = SandboxSettings(memory_bytes=200 * MIB, cpus=0.8, processes=16)


@pytest.fixture
def group() -> Iterator[Cgroup]:
    with real_group() as group:
        group.divide()
        own = group.create("runs")
        own.divide()
        yield own
        assert [path for path in own.path.iterdir() if path.is_dir()] == []


@pytest.fixture
def worker(group: Cgroup) -> WorkerBounds:
    return WorkerBounds(LIMITS, group)


async def test_of_a_run_the_command_with_the_most_memory_is_killed_whole(worker: WorkerBounds, tmp_path: Path) -> None:
    with run_of(worker, tmp_path / "ws") as (sandbox, reported):
        small = await holding(sandbox, 40)
        done = await sandbox.run(bash(f"{HOLD.format(60)} & {HOLD.format(150)} & wait; wait", 60))
        assert (small.running, reported) == (True, [])
        again = await sandbox.run(bash(HOLD.format(300), 60))
        await sandbox.shells.end()
    for each in (done, again):
        assert "wanted more memory together than the limit, and the limit is 200 MiB (sandbox.memory_bytes)" in (
            each.exceeded
        )
        assert each.stderr.decode().endswith(f"[killed: {each.exceeded}]\n")


async def test_the_share_of_the_worker_is_named_where_it_is_the_smaller_one(group: Cgroup, tmp_path: Path) -> None:
    worker = WorkerBounds(SandboxSettings(), group)
    group.limit(memory=150 * MIB)
    with run_of(worker, tmp_path / "ws") as (sandbox, _):
        done = await sandbox.run(bash(HOLD.format(300), 60))
    assert "the commands of all runs of this worker wanted more memory" in done.exceeded
    assert "(sandbox.share)" in done.exceeded


async def test_memory_in_tmp_counts(worker: WorkerBounds, tmp_path: Path) -> None:
    with run_of(worker, tmp_path / "ws") as (sandbox, _):
        done = await sandbox.run(bash("head -c 250M /dev/zero >/tmp/a; exec sleep 1000", 60))
    assert "sandbox.memory_bytes" in done.exceeded


async def test_processors_are_bounded_for_the_whole_run(group: Cgroup, worker: WorkerBounds, tmp_path: Path) -> None:
    with run_of(worker, tmp_path / "ws") as (sandbox, _):
        spin = "echo up; while :; do :; done"
        await sandbox.shells.start("spin", bash(f"{spin} & {spin}"))
        statistics = next(group.path.glob("run-*/cpu.stat"))
        await until(lambda: "nr_throttled 0\n" not in statistics.read_text())
        await sandbox.shells.end()


async def test_processes_are_bounded_for_the_whole_run(group: Cgroup, worker: WorkerBounds, tmp_path: Path) -> None:
    with run_of(worker, tmp_path / "ws") as (sandbox, reported):
        forks = "for n in {1..10}; do sleep 1000 & done; echo up; wait"
        shells = [await sandbox.shells.start("sleep", bash(forks)) for _ in range(7)]
        events = [*group.path.glob("run-*/*/pids.events")]  # which group counts it depends on the kernel
        await until(lambda: any("max 0\n" not in each.read_text() for each in events))
        assert any(shell.running for shell in shells)
        await sandbox.shells.end()
    assert reported == []


async def test_a_command_that_cannot_be_started_leaves_no_group(worker: WorkerBounds, tmp_path: Path) -> None:
    with run_of(worker, tmp_path / "ws") as (sandbox, _):
        with pytest.raises(Exception, match="cannot be started"):
            await sandbox.run(bash("echo \0"))
        assert await said(sandbox, "echo fine") == "fine"
        with sandbox_over(tmp_path / "other", bounds=sandbox.bounds) as other:
            assert await said(other, "cat /proc/self/cgroup") == "0::/"
