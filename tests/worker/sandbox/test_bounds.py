"""What all commands of a run may use together, and those of all runs: memory, processors, processes and disk."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.settings import SandboxSettings
from deputize.worker.linux import system
from deputize.worker.linux.cgroup import Cgroup
from deputize.worker.sandbox import environment
from deputize.worker.sandbox.bounds import Member, RunBounds, WorkerBounds
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.protections import run_selftest
from deputize.worker.sandbox.shells import BackgroundShell
from deputize.worker.sandbox.usage import Usage, usages
from tests.processes.ordinary_user import home_of_an_ordinary_user, need_ordinary_user
from tests.waiting import until
from tests.worker.forked import in_child
from tests.worker.linux.delegation import real_group
from tests.worker.sandbox.sandboxes import bash, said, sandbox_over

MIB = 1 << 20
HOLD = 'python3 -c \'import signal; b = b"x" * ({} << 20); print("held", flush=True); signal.pause()\''
WRITE = "head -c {}M /dev/zero >{}"
STAY = "exec sleep 1000"


@contextmanager
def run_of(worker: WorkerBounds, folder: Path) -> Generator[tuple[Bubblewrap, list[str]]]:
    """A run's sandbox, and what its bounds report."""
    reported: list[str] = []
    with worker.run(folder, reported.append) as bounds, sandbox_over(folder, bounds=bounds) as sandbox:
        yield sandbox, reported


@pytest.fixture
def quiet_disk() -> Generator[Path]:
    """A directory on a disk on which other tests write little: what they write is not this run's doing."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        yield Path(folder)


async def holding(sandbox: Bubblewrap, mebibytes: int) -> BackgroundShell:
    """A background command that holds so much memory."""
    shell = await sandbox.shells.start("hold", bash(HOLD.format(mebibytes)))
    await until(lambda: not shell.unread.empty)
    return shell


async def test_all_commands_of_a_run_count_together_and_the_largest_is_killed(tmp_path: Path) -> None:
    limits = SandboxSettings(memory_bytes=300 * MIB)
    with run_of(WorkerBounds(limits), tmp_path / "ws") as (sandbox, reported):
        large, small = await holding(sandbox, 150), await holding(sandbox, 50)
        with Bubblewrap(tmp_path / "ws", bounds=sandbox.bounds) as of_a_server:
            server = await holding(of_a_server, 130)
            killed = await until(lambda: next((each for each in (large, small, server) if not each.running), None))
            assert (killed, small.running, server.running) == (large, True, True)
            await of_a_server.shells.end()
        output = (await large.read()).text
        await sandbox.shells.end()
    assert "[killed: the processes of this run used" in output
    assert "the limit is 300 MiB (sandbox.memory_bytes)" in output
    assert len(reported) == 1
    assert "sandbox.memory_bytes" in reported[0]


async def test_all_runs_of_a_worker_share_its_memory_and_the_largest_command_is_killed(tmp_path: Path) -> None:
    worker = WorkerBounds(SandboxSettings(share=300 * MIB / system.memory_bytes()))
    with run_of(worker, tmp_path / "a") as (one, reported), run_of(worker, tmp_path / "b") as (other, of_other):
        large = await holding(one, 200)
        small = await holding(other, 120)
        await until(lambda: not large.running)
        assert small.running
        assert (len(reported), of_other) == (1, [])
        assert "the commands of all runs of this worker used" in reported[0]
        assert "300 MiB (sandbox.share)" in reported[0]
        await asyncio.gather(one.shells.end(), other.shells.end())
    assert worker.room == worker.memory


async def test_pages_that_processes_share_do_not_fill_the_share_of_a_worker(tmp_path: Path) -> None:
    worker = WorkerBounds(SandboxSettings(share=300 * MIB / system.memory_bytes()))
    fork = "python3 -c 'import os, time; b = b\"x\" * (100 << 20); [os.fork() for _ in range(3)]; time.sleep(0.5)'"
    with run_of(worker, tmp_path / "ws") as (sandbox, _):
        done = await sandbox.run(bash(fork, 60))
    assert (done.exit_code, done.exceeded) == (0, "")


async def test_a_run_has_four_times_the_processes_of_a_command(tmp_path: Path) -> None:
    limits = SandboxSettings(processes=16)
    forks = "for n in {1..10}; do sleep 1000 & done; echo up; wait"
    with run_of(WorkerBounds(limits), tmp_path / "ws") as (sandbox, reported):
        shells = [await sandbox.shells.start("sleep", bash(forks)) for _ in range(6)]
        await until(lambda: not all(shell.running for shell in shells))
        await sandbox.shells.end()
    assert "and may have 64 (four times sandbox.processes)" in reported[0]


async def test_a_run_is_tied_to_the_processors_it_may_use_and_runs_are_spread(tmp_path: Path) -> None:
    if len(system.processors()) < 2:
        pytest.skip("SKIPPED: there is one processor")
    worker = WorkerBounds(SandboxSettings(cpus=0.5, share=1))
    with run_of(worker, tmp_path / "a") as (one, _), run_of(worker, tmp_path / "b") as (other, _):
        tied = "import os; print(*os.sched_getaffinity(0))"
        found = [await said(each, f'python3 -c "{tied}"') for each in (one, other)]
        assert sorted(found) == [str(each) for each in system.processors()[:2]]
        assert await said(one, "nproc") == "1"
        assert "Operation not permitted" in await said(one, "taskset -p 3 $$ 2>&1; exit 0")


def test_a_run_that_may_use_all_processors_is_not_tied(tmp_path: Path) -> None:
    with WorkerBounds(SandboxSettings(cpus=len(system.processors()))).run(tmp_path) as bounds:
        assert bounds.processors == []


async def test_processors_of_a_run_that_has_ended_are_free_again(tmp_path: Path) -> None:
    worker = WorkerBounds(SandboxSettings(cpus=1, share=1))
    for _ in range(3):
        with worker.run(tmp_path) as first, worker.run(tmp_path) as second:
            assert sorted(first.processors + second.processors) == system.processors()[:2] or first.processors == []


GROWTH = {
    "in the workspace": WRITE.format(9, "a"),
    "in small files": "for n in {1..40}; do " + WRITE.format(1, "f$n") + "; done",
    "in /tmp": WRITE.format(9, "/tmp/a"),
    "where it is unreadable": "mkdir d; " + WRITE.format(9, "d/a") + "; chmod 000 d",
    "in a file that is deleted": f"exec 3>a; rm a; {WRITE.format(9, '/proc/self/fd/3')}",
}


@pytest.mark.parametrize("way", GROWTH)
async def test_a_command_that_takes_too_much_disk_is_killed_and_the_limit_named(way: str, tmp_path: Path) -> None:
    limits = SandboxSettings(disk_bytes=4 * MIB)
    with run_of(WorkerBounds(limits), tmp_path / "ws") as (sandbox, _):
        done = await sandbox.run(bash(f"{GROWTH[way]}; {STAY}", 60))
    assert "the limit is 4 MiB (sandbox.disk_bytes)" in done.exceeded
    assert f"[killed: {done.exceeded}]\n" == done.stderr.decode()


async def test_of_limits_that_are_exceeded_until_a_killed_command_ends_the_first_is_named(tmp_path: Path) -> None:
    with run_of(WorkerBounds(SandboxSettings()), tmp_path / "ws") as (sandbox, reported):
        shell = await holding(sandbox, 1)
        (member,) = sandbox.bounds.members
        for why in ("it takes 21 MiB", "it takes 23 MiB"):
            member.kill(why)
        await until(lambda: not shell.running)
        output = (await shell.read()).text
        await sandbox.shells.end()
    assert ("21 MiB" in output, "23 MiB" in output) == (True, False)
    assert len(reported) == 1
    assert "21 MiB" in reported[0]


async def test_files_from_before_the_run_count_and_may_be_deleted_even_if_too_many(
    tmp_path: Path,
) -> None:
    worker = WorkerBounds(SandboxSettings(disk_bytes=12 * MIB))
    for size, line in ((8, WRITE.format(9, "a")), (16, WRITE.format(2, "a")), (16, "")):
        folder = tmp_path / f"{size}{line[:1]}"
        with run_of(worker, folder) as (sandbox, _):
            (folder / "copied").write_bytes(os.urandom(size * MIB))
            delete = f"sleep 0.4; rm copied; {WRITE.format(9, 'b')}; sleep 0.4"
            done = await sandbox.run(bash(f"{line}; {STAY}" if line else delete, 60))
            assert bool(done.exceeded) is bool(line)
            assert await sandbox.bounds.most_on_disk() in range(max(12, size) * MIB, (max(12, size) + 1) * MIB)


async def test_of_several_commands_the_one_that_writes_is_killed(tmp_path: Path) -> None:
    with run_of(WorkerBounds(SandboxSettings(disk_bytes=4 * MIB)), tmp_path / "ws") as (sandbox, reported):
        idle = await sandbox.shells.start("idle", bash(f"echo up; {STAY}", 60))
        done = await sandbox.run(bash(f"{WRITE.format(9, '/tmp/a')}; {STAY}", 60))
        assert (bool(done.exceeded), idle.running) == (True, True)
        later = await sandbox.shells.start("idle", bash(f"echo up; {STAY}", 60))
        writing = await sandbox.shells.start("write", bash(f"{WRITE.format(9, '/tmp/a')}; {STAY}", 60))
        await until(lambda: not writing.running)
        assert later.running
        await sandbox.shells.end()
    assert len(reported) == 1


async def test_all_runs_of_a_worker_share_the_free_disk(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    worker = WorkerBounds(SandboxSettings(share=6 * MIB / free))
    with ExitStack() as opened:
        one, reported = opened.enter_context(run_of(worker, tmp_path / "a"))
        other, _ = opened.enter_context(run_of(worker, tmp_path / "b"))
        small = await other.shells.start("write", bash(f"{WRITE.format(2, 'a')}; echo up; {STAY}", 60))
        await until(lambda: other.bounds.growth.added > MIB)
        done = await one.run(bash(f"{WRITE.format(9, 'a')}; {STAY}", 60))
        assert "less than sandbox.share leaves to others" in done.exceeded
        assert (small.running, reported) == (True, [])
        await other.shells.end()


@pytest.mark.parametrize("way", ["at once", "until it is killed", "where it is unreadable"])
async def test_what_a_command_wrote_is_removed_where_it_leaves_too_little_to_others(way: str, quiet_disk: Path) -> None:
    worker = WorkerBounds(SandboxSettings(share=6 * MIB / shutil.disk_usage(quiet_disk).free))
    line = (
        GROWTH["where it is unreadable"] if way == "where it is unreadable" else f"{WRITE.format(9, 'a')}; echo x > b"
    )
    with run_of(worker, quiet_disk / "ws") as (sandbox, _):
        (quiet_disk / "ws/before").write_bytes(os.urandom(12 * MIB))
        await sandbox.bounds.growth.check()
        done = await sandbox.run(bash(f"{line}; {STAY if way == 'until it is killed' else ''}", 60))
        # On a busy machine a command that ends by itself may be killed while it writes.
        assert done.exceeded or way != "until it is killed"
        removed = await sandbox.bounds.growth.check()
        assert await sandbox.bounds.growth.check() == ""
        again = await sandbox.run(bash(f"rm before; {WRITE.format(1, 'c')}; sleep 0.5; ls", 60))
    names = "d/a" if way == "where it is unreadable" else "a"
    written = r"[\d.]+" if done.exceeded else "9"
    assert re.search(rf"so the files that this run had written were removed: {names} \({written} MiB\)$", removed)
    rest = {b"d"} if names == "d/a" else {b"b"}
    assert (again.exceeded, {*again.stdout.split()} - rest) == ("", {b"c"})


async def test_a_run_loses_no_files_where_another_one_has_filled_the_disk(quiet_disk: Path) -> None:
    worker = WorkerBounds(SandboxSettings(share=6 * MIB / shutil.disk_usage(quiet_disk).free))
    with ExitStack() as opened:
        one, _ = opened.enter_context(run_of(worker, quiet_disk / "a"))
        other, _ = opened.enter_context(run_of(worker, quiet_disk / "b"))
        for each in (one, other):
            await each.bounds.growth.check()
        await one.run(bash(WRITE.format(2, "mine"), 60))
        await other.bounds.begin()
        (quiet_disk / "b/big").write_bytes(os.urandom(40 * MIB))
        assert await one.bounds.growth.check() == ""
        assert "removed: big (40 MiB)" in await other.bounds.growth.check()
    assert [path.name for path in (quiet_disk / "a").iterdir()] == ["mine"]


@pytest.mark.parametrize("what", ["memory", "disk"])
def test_the_same_holds_for_an_ordinary_user(what: str) -> None:
    """The test is root here; elsewhere every other test is this one."""
    need_ordinary_user()
    script = HOLD.format(400) if what == "memory" else f"{GROWTH['where it is unreadable']}; {STAY}"
    limits = SandboxSettings(memory_bytes=256 * MIB, disk_bytes=4 * MIB)

    async def work(home: Path) -> str:
        proof = await run_selftest(Bubblewrap, home, environment.find_bubblewraps())
        with sandbox_over(home / "ws", limits=limits, bwrap=proof.bwrap, mounts=()) as sandbox:
            done = await sandbox.run(bash(script, 60))
        await asyncio.to_thread((home / "ws/d").chmod, 0o700) if what == "disk" else None
        return done.exceeded

    with home_of_an_ordinary_user() as home:
        assert f"sandbox.{what}_bytes" in in_child(lambda: asyncio.run(work(home)), ordinary=True)


async def test_a_run_without_commands_is_not_measured(tmp_path: Path) -> None:
    with run_of(WorkerBounds(SandboxSettings()), tmp_path / "ws") as (sandbox, _):
        assert isinstance(sandbox.bounds, RunBounds)
        await said(sandbox, "true")
        assert sandbox.bounds.members == []


class SlowFolder:
    """A folder whose measurement waits, and then fails."""

    def __init__(self) -> None:
        self.is_slow = False
        self.asked, self.goes_on = threading.Event(), threading.Event()

    def __fspath__(self) -> str:
        if self.is_slow:
            self.asked.set()
            self.goes_on.wait(30)
            raise RuntimeError("the measurement fails")
        return "/nowhere"

    def __str__(self) -> str:
        return "/nowhere"


async def test_a_measurement_that_fails_after_the_end_of_its_run_is_not_reported() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    folder = SlowFolder()
    with WorkerBounds(SandboxSettings()).run(folder, base=0) as bounds:  # pyright: ignore[reportArgumentType]
        folder.is_slow = True
        bounds.add(Member(bounds, [], None))
        await until(folder.asked.is_set)
    folder.goes_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()  # the measurement has ended
    await asyncio.sleep(0)
    gc.collect()
    assert reported == []


SMALL = SandboxSettings(memory_bytes=256 << 20, file_bytes=2 << 20, processes=32, tmp_bytes=4 << 20)
HOLD_AND = 'python3 -c \'b = bytearray({} << 20); b[::4096] = b[::4096].replace(b"\\0", b"x"); print(1); {}\''
FOREVER = "import signal; signal.pause()"


async def test_a_command_that_takes_too_much_memory_is_killed_and_reported(tmp_path: Path) -> None:
    with sandbox_over(tmp_path / "ws", limits=SMALL) as sandbox:
        done = await sandbox.run(bash(HOLD_AND.format(600, FOREVER), 60))
        assert done.exit_code != 0
        assert not done.timed_out
        assert done.stderr.decode().endswith("the limit is 256 MiB (sandbox.memory_bytes); this one had the most]\n")
        assert await said(sandbox, "echo fine") == "fine"


async def test_processes_of_one_command_count_together(tmp_path: Path) -> None:
    with sandbox_over(tmp_path / "ws", limits=SMALL) as sandbox:
        done = await sandbox.run(bash(f"for n in 1 2 3 4; do {HOLD_AND.format(90, FOREVER)} & done; wait", 60))
        assert b"of memory together" in done.stderr


async def test_pages_that_processes_share_count_once(tmp_path: Path) -> None:
    fork = "import os; [os.fork() for _ in range(3)]; import time; time.sleep(0.5)"
    with sandbox_over(tmp_path / "ws", limits=SMALL) as sandbox:
        done = await sandbox.run(bash(HOLD_AND.format(100, fork)))
        assert (done.exit_code, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "reserve",
    [
        "python3 -c 'import mmap; mmap.mmap(-1, 8 << 30, prot=3); print(1)'",
        "node -e 'new WebAssembly.Memory({initial: 1, maximum: 65536, shared: true}); console.log(1)'",
    ],
)
async def test_address_space_that_is_only_reserved_is_no_memory(reserve: str, tmp_path: Path) -> None:
    with sandbox_over(tmp_path / "ws", limits=SMALL) as sandbox:
        if sandbox.program(reserve.partition(" ")[0]) is None:
            pytest.skip(f"SKIPPED: {reserve.partition(' ')[0]} is not here")
        assert await said(sandbox, reserve) == "1"


async def test_files_processes_and_tmp_have_the_limits_of_the_settings(tmp_path: Path) -> None:
    with sandbox_over(tmp_path / "ws", limits=SMALL) as sandbox:
        limits = await said(sandbox, "ulimit -u; ulimit -f; ulimit -v; ulimit -n; ulimit -c")
        assert limits.split() == ["32", "2048", "unlimited", "1024", "0"]
        assert "No space left" in await said(sandbox, "for n in 1 2 3; do head -c 1900K /dev/zero >/tmp/$n; done")
        await said(sandbox, "truncate -s 3M big; true")
    assert not (tmp_path / "ws/big").exists() or (tmp_path / "ws/big").stat().st_size <= 2 << 20


def test_what_is_gone_holds_nothing() -> None:
    assert usages([0], 0) == [Usage()]
    assert usages([os.getpid()], 1 << 50)[0].memory > 1 << 20


OF_GROUPS = SandboxSettings(memory_bytes=200 * MIB, cpus=0.8, processes=16)


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
    return WorkerBounds(OF_GROUPS, group)


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
