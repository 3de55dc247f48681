"""Where another run has filled the disk for a moment, a run's writes wait for room, and none of them fails."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from deputize.shared.errors import Misconfigured, RepositoryFailed
from deputize.shared.log import delegation
from deputize.shared.request import DirectoryWorkspace, EmptyWorkspace
from deputize.shared.settings import SandboxSettings
from deputize.worker.sandbox import environment
from deputize.worker.sandbox.bounds import WorkerBounds
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.command import create_status_file
from deputize.worker.sandbox.full_disk import FullDisk
from deputize.worker.sandbox.protections import SelfTestResult, run_selftest
from deputize.worker.threads import ALLOWANCE, LONG_WORK_THREADS, run_in_thread, share_threads
from deputize.worker.verification.grounds.ground import Grounds
from deputize.worker.workspace.artifacts import Artifacts
from deputize.worker.workspace.manifest import Deadline
from deputize.worker.workspace.notes import Notes
from deputize.worker.workspace.source import open_folder
from deputize.worker.workspace.workspace import Workspace, check_writable


def compute_beyond_allowance() -> None:
    began = time.thread_time()
    while time.thread_time() - began < 2 * ALLOWANCE:
        pass


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def failing(*errors: Exception) -> Callable[[], int]:
    """Work that fails so often; returns how often it was done."""
    done = iter(range(1, 100))
    left = iter(errors)

    def work() -> int:
        number = next(done)
        for error in left:
            raise error
        return number

    return work


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        OSError(errno.EDQUOT, "quota"),
        RepositoryFailed("repository_unreachable", "git fetch failed: error: No space left on device"),
    ],
)
async def test_work_that_finds_no_room_is_done_again(error: Exception, tmp_path: Path) -> None:
    assert await run_in_thread(FullDisk(tmp_path).with_room, failing(error, error)) == 3


async def test_what_does_not_fit_or_fails_for_another_reason_is_not_waited_for(tmp_path: Path) -> None:
    for error, tries in ((OSError(errno.EACCES, "no"), 1), (FULL, 8), (RepositoryFailed("repository_never", "no"), 1)):
        work = failing(*[error] * (tries + 1))
        with pytest.raises(type(error)):
            await run_in_thread(FullDisk(tmp_path).with_room, work)
        with pytest.raises(type(error)):  # outside of threads nothing waits
            FullDisk(tmp_path).with_room(work)
        assert work() == tries + 2


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB, without room as long as there is a file ``other/filler``."""
    if os.geteuid() != 0:
        pytest.skip("SKIPPED: mounting a small disk is root's")
    disk = tmp_path / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=400", "tmpfs", str(disk)], check=True)
    try:
        (disk / "other").mkdir()
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path, what: str) -> Path:
    filler = disk / "other/filler"
    filler.mkdir()
    with suppress(OSError), (filler / "all").open("wb", buffering=0) as file:
        for number in range(10**6):
            if what == "files":
                (filler / str(number)).touch()
            elif not file.write(bytes(4096)):
                break
    return filler


@pytest.fixture
async def workspace(small: Path, tmp_path: Path) -> AsyncIterator[Workspace]:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/a.txt").write_text("a\n" * 5000)
    spec = DirectoryWorkspace(kind="directory", path=str(tmp_path / "project"))
    made = await Workspace.create(spec, "dlg_1", small)
    yield made
    made.close()


@pytest.mark.parametrize("what", ["bytes", "files"])
async def test_the_writes_of_a_run_outlast_a_disk_that_another_one_has_filled(
    what: str, workspace: Workspace, small: Path, tmp_path: Path
) -> None:
    spec = DirectoryWorkspace(kind="directory", path=str(tmp_path / "project"))
    grounds = Grounds(small, "dlg_1")
    (workspace.path / "changed.txt").write_text("new\n" * 3000)
    with open_folder(workspace.base) as base, closing(grounds):
        filler = fill(small, what)
        doing = [
            asyncio.create_task(run_in_thread(workspace.files.write, "tool.txt", b"x" * 9000)),
            asyncio.create_task(run_in_thread(Artifacts(workspace.files).add, "report.md", "text" * 3000, 1)),
            asyncio.create_task(run_in_thread(Notes(workspace.files).add, "a note", "", Event())),
            asyncio.create_task(run_in_thread(grounds.make, "base", base, None, {"check.py": "pass"}, Event())),
            asyncio.create_task(workspace.note_changes("step")),
            asyncio.create_task(Workspace.create(spec, "dlg_2", small)),
        ]
        done, _ = await asyncio.wait(doing, timeout=0.3)
        assert not done, [task.result() for task in done]
        shutil.rmtree(filler)
        *_, ground, changes, other = await asyncio.gather(*doing)
        assert (ground / "a.txt").exists()
        assert changes
        assert workspace.snapshots.history.lacks == ""
        other.close()


async def test_another_attempt_begins_when_there_is_room_for_the_marks_of_the_one_before(
    workspace: Workspace, small: Path
) -> None:
    with os.fdopen(create_status_file(workspace.status_folder, "call_1_1"), "w") as mark:
        mark.write('{"exit-code": 0}')
    filler = fill(small, "bytes")
    beginning = asyncio.create_task(Workspace.create(EmptyWorkspace(kind="empty"), "dlg_1", small, attempt=2))
    assert not (await asyncio.wait({beginning}, timeout=0.3))[0]
    shutil.rmtree(filler)
    with closing(await beginning) as begun:
        assert [each.name for each in begun.status_folder.iterdir()] == ["call_1_1"]


async def test_no_command_begins_on_a_full_disk_and_one_that_failed_on_it_is_known(small: Path) -> None:
    (small / "run").mkdir()
    with WorkerBounds(SandboxSettings()).run(small / "run") as bounds:
        assert not await bounds.until_room()
        filler = fill(small, "bytes")
        beginning = asyncio.create_task(bounds.join())
        assert not (await asyncio.wait({beginning}, timeout=0.3))[0]
        waiting = asyncio.create_task(bounds.until_room())
        assert not (await asyncio.wait({waiting}, timeout=0.3))[0]
        shutil.rmtree(filler)
        assert await waiting
        (await beginning).discard_unused()


async def start(home: Path) -> SelfTestResult:
    """What a worker does before it takes a run."""
    await run_in_thread(check_writable, home)
    return await run_selftest(Bubblewrap, home, environment.find_bubblewraps())


@pytest.mark.parametrize("what", ["bytes", "files"])
async def test_a_worker_that_starts_on_a_full_disk_waits_for_room_and_has_its_sandbox_then(
    what: str, small: Path
) -> None:
    """The result is that of all its runs: with a failure each of their calls would be denied."""
    filler = fill(small, what)
    starting = asyncio.create_task(start(small))
    assert not (await asyncio.wait({starting}, timeout=1))[0]
    shutil.rmtree(filler)
    assert (await starting).reason is None
    assert [path.name for path in small.iterdir()] == ["other"]


async def test_a_folder_for_workspaces_on_a_disk_that_stays_full_is_reported_with_a_remedy(small: Path) -> None:
    fill(small, "files")
    with pytest.raises(Misconfigured, match=r"no space left on the worker's disk.*free some"):
        check_writable(small / "workspaces")  # outside of threads nothing waits


async def test_a_disk_that_stays_full_is_waited_for_once(small: Path) -> None:
    fill(small, "bytes")
    disk = FullDisk(small, seconds=2)
    with pytest.raises(OSError, match="No space left"):
        await run_in_thread(disk.with_room, (small / "one").write_bytes, bytes(9000))
    began, work = time.monotonic(), failing(*[FULL] * 9)
    with pytest.raises(OSError, match="No space left"):
        await run_in_thread(disk.with_room, work)
    assert not await disk.until_room()
    assert time.monotonic() - began < 30


async def test_a_run_that_is_stopped_waits_no_longer(small: Path) -> None:
    fill(small, "bytes")
    writing = asyncio.create_task(run_in_thread(FullDisk(small).with_room, (small / "one").write_bytes, bytes(9000)))
    await asyncio.wait({writing}, timeout=0.1)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(writing, 30)


async def test_a_wait_ends_where_the_work_has_no_more_time(small: Path) -> None:
    fill(small, "bytes")
    deadline, began = Deadline(0.1), time.monotonic()
    with pytest.raises(OSError, match="No space left"):
        await run_in_thread(
            FullDisk(small).with_room_until, lambda: deadline.expired, (small / "one").write_bytes, bytes(9000)
        )
    assert time.monotonic() - began < 30


@pytest.mark.costly
async def test_the_long_work_of_another_run_goes_on_while_runs_wait(small: Path) -> None:
    filler, ready = fill(small, "bytes"), asyncio.Barrier(LONG_WORK_THREADS + 2)
    go_on = asyncio.Event()
    share_threads(asyncio.get_running_loop())

    async def after_much_computing(number: int, work: Callable[[], int]) -> int:
        delegation.set(f"dlg_{number}")
        await run_in_thread(compute_beyond_allowance)
        await ready.wait()
        if number == LONG_WORK_THREADS:
            await go_on.wait()
        return await run_in_thread(work)

    def write(number: int) -> int:
        return FullDisk(small).with_room((small / str(number)).write_bytes, bytes(9000))

    writing = [
        asyncio.create_task(after_much_computing(number, partial(write, number))) for number in range(LONG_WORK_THREADS)
    ]
    other = asyncio.create_task(after_much_computing(LONG_WORK_THREADS, int))
    await ready.wait()
    await asyncio.wait(writing, timeout=0.3)  # all places are taken first
    go_on.set()
    assert await asyncio.wait_for(other, 40) == 0
    assert not any(task.done() for task in writing)
    shutil.rmtree(filler)
    assert await asyncio.gather(*writing) == [9000] * LONG_WORK_THREADS
