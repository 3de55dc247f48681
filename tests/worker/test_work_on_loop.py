"""Short file work is done on the event loop; what takes long, waits or is elsewhere does not hold it up."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import ErrorType, Invalid
from deputize.shared.libc import is_on_local_disk
from deputize.shared.log import delegation
from deputize.shared.request import EmptyWorkspace
from deputize.worker.fleet.lease import StopSignal
from deputize.worker.run_files import collect_outputs
from deputize.worker.threads import (
    A_TURN,
    ALLOWANCE,
    AVOIDED_SECONDS,
    FEW_BYTES,
    LOOP_BYTES,
    LOOP_ENTRIES,
    LOOP_WAIT,
    SLOW_SECONDS,
    give_way,
    leave_loop,
    release_slot,
    run_in_thread,
    run_short,
    run_short_in,
    share_threads,
    stay_on_loop,
    take_memory,
)
from deputize.worker.workspace.manifest import Deadline
from deputize.worker.workspace.workspace import Workspace
from tests.runs.toolbench import Toolbench
from tests.waiting import until
from tests.worker.waiting_mount import waiting_mount
from tests.worker.workspace.trees import directory


def is_on_loop() -> bool:
    return threading.current_thread() is threading.main_thread()


class Work:
    """Work that calls ``between``, and remembers where it began."""

    def __init__(self, between: Callable[[], object] = lambda: None) -> None:
        self.between = between
        self.began: list[bool] = []

    def __call__(self) -> int:
        self.began.append(is_on_loop())
        self.between()
        return len(self.began)


def compute(seconds: float = 0.01) -> None:
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        sum(range(10_000))
        give_way()


def wait() -> None:
    threading.Event().wait(2 * LOOP_WAIT)
    give_way()


def pass_entries(count: int) -> None:
    for _ in range(count):
        give_way()


def read_files() -> None:
    for _ in range(LOOP_BYTES // FEW_BYTES + 1):
        take_memory(FEW_BYTES)


@pytest.mark.requirement("P-03")
@pytest.mark.parametrize(
    ("between", "began"),
    [
        (lambda: pass_entries(LOOP_ENTRIES), [True]),
        (lambda: pass_entries(LOOP_ENTRIES + 1), [True, False]),
        (lambda: take_memory(FEW_BYTES), [True]),
        (lambda: take_memory(FEW_BYTES + 1), [True, False]),
        (read_files, [True, False]),
        (leave_loop, [True, False]),
        (release_slot, [True, False]),
        (compute, [True, False]),
        (wait, [True, False]),
    ],
    ids=[
        "few entries",
        "many entries",
        "small file",
        "large file",
        "many files",
        "waits",
        "waits, too",
        "computes",
        "slow disk",
    ],
)
async def test_work_begins_again_in_a_thread_where_it_is_not_short(
    between: Callable[[], object], began: list[bool]
) -> None:
    work = Work(between)
    assert await run_short(True, work) == len(began)
    assert work.began == began


async def test_work_that_is_not_on_a_local_disk_is_done_in_a_thread() -> None:
    work = Work()
    await run_short(False, work)
    assert work.began == [False]


async def test_an_exception_comes_back_and_nothing_begins_again() -> None:
    work = Work(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        await run_short(True, work)
    assert work.began == [True]


async def test_after_a_disk_was_slow_nothing_is_done_on_the_loop() -> None:
    await run_short(True, lambda: threading.Event().wait(2 * LOOP_WAIT))
    await run_short(True, work := Work())
    assert work.began == [False]


async def test_a_disk_that_was_slow_once_is_soon_used_on_the_loop_again() -> None:
    await run_short(True, lambda: threading.Event().wait(2 * LOOP_WAIT))
    began = time.monotonic()

    async def is_used() -> bool:
        await run_short(True, work := Work())
        return work.began == [True]

    await until(is_used)
    assert time.monotonic() - began < AVOIDED_SECONDS


async def test_a_run_that_has_computed_much_does_nothing_on_the_loop() -> None:
    delegation.set("one")
    await run_in_thread(compute, 2 * ALLOWANCE)
    await run_short(True, work := Work())
    delegation.set("other")
    await run_short(True, others := Work())
    delegation.set("")
    assert (work.began, others.began) == ([False], [True])


async def test_what_is_computed_on_the_loop_counts_for_the_run() -> None:
    delegation.set("often")
    began = list[bool]()

    def often() -> None:
        began.append(is_on_loop())
        end = time.thread_time() + ALLOWANCE * 2
        while time.thread_time() < end:  # without giving way
            pass

    await run_short(True, often)
    await run_short(True, work := Work())
    delegation.set("")
    assert (began, work.began) == ([True], [False])


async def test_the_loop_does_few_pieces_of_work_in_a_turn() -> None:
    turn, turns = 0, list[int]()

    def count() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(count)

    count()
    await asyncio.gather(*(run_short(True, lambda: turns.append(turn)) for _ in range(20)))
    assert max(turns.count(each) for each in turns) == A_TURN


async def test_a_cancelled_waiter_does_nothing_and_delays_no_other() -> None:
    works = [Work() for _ in range(A_TURN + 2)]
    waiting = [asyncio.create_task(run_short(True, each)) for each in works]
    await asyncio.sleep(0)
    waiting[A_TURN].cancel()
    await asyncio.wait(waiting)
    assert waiting[A_TURN].cancelled()
    assert [each.began for each in works] == [*[[True]] * A_TURN, [], [True]]


@pytest.mark.parametrize(("place", "local"), [("/proc", False), ("/sys", False), ("/dev/shm", True)])
def test_only_known_file_systems_of_this_machine_are_local(place: str, local: bool) -> None:
    fd = os.open(place, os.O_PATH)
    assert is_on_local_disk(fd) is local
    os.close(fd)
    assert not is_on_local_disk(fd)


class CountingThreads(ThreadPoolExecutor):
    """Threads that count what they are asked to do."""

    count = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.count += 1
        return super().submit(fn, *args, **kwargs)


async def test_a_workspace_on_a_local_disk_is_read_on_the_loop(desk: Toolbench, tmp_path: Path) -> None:
    desk.write("a.txt", "one\n")
    workspace = await Workspace.create(EmptyWorkspace(), "dlg_1", tmp_path)
    desk.files.is_local = workspace.files.is_local
    asyncio.get_running_loop().set_default_executor(threads := CountingThreads())
    assert (await desk.call("read_file", path="a.txt")).content == "     1|one"
    assert "a.txt" in (await desk.call("list_directory", path=".")).content
    assert (await collect_outputs(workspace, StopSignal()))[1] is not None
    assert threads.count == 0
    assert await run_in_thread(lambda: threads.count) == 1
    workspace.close()


@pytest.mark.requirement("P-03")
@pytest.mark.parametrize("tool", ["read_file", "list_directory"])
async def test_a_file_system_that_does_not_answer_holds_up_no_loop(tmp_path: Path, desk: Toolbench, tool: str) -> None:
    (await Workspace.create(EmptyWorkspace(), "dlg_1", tmp_path)).close()
    with waiting_mount(tmp_path / "dlg_1/files") as mount:
        workspace = await Workspace.open("dlg_1", tmp_path)
        assert not workspace.files.is_local
        bench = replace(desk, files=workspace.files)
        mount.asked.clear()
        mount.go.clear()
        calling = asyncio.create_task(bench.call(tool, path="folder"))
        await until(mount.asked.is_set, 20)
        assert not calling.done()
        mount.go.set()
        assert not (await calling).success
        workspace.close()


async def threads_of(work: Awaitable[Workspace]) -> int:
    """Returns how often the workspace was handed to a thread while it was made."""
    asyncio.get_running_loop().set_default_executor(threads := CountingThreads())
    (await work).close()
    return threads.count


@pytest.mark.parametrize(
    ("files", "threads"),
    [
        ({}, 0),
        ({"a": "1", "b": "2"}, 0),
        ({str(number): "" for number in range(8)}, 0),
        ({str(number): "" for number in range(9)}, 1),
        ({"a": "1" * FEW_BYTES}, 0),
        ({"a": "1" * FEW_BYTES, "b": "2"}, 1),
        ({"folder/a": "1"}, 1),
        ({"a": "1", ".gitignore": "b"}, 1),
        ({".git": "gitdir: elsewhere"}, 1),
    ],
    ids=["nothing", "few", "most", "many", "small", "large", "another disk may be below", "asks git", "a worktree"],
)
async def test_a_small_directory_is_copied_on_the_loop(files: dict[str, str], threads: int, tmp_path: Path) -> None:
    (source := tmp_path / "source").mkdir()
    for name, text in files.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(text)
    spec, root = directory(source, ignored=False), tmp_path / "ws"
    (await Workspace.create(spec, "dlg_1", root)).close()  # finds out which disks these are
    assert await threads_of(Workspace.create(spec, "dlg_2", root)) == threads
    assert await threads_of(Workspace.create(spec, "dlg_2", root, attempt=2)) == 1, "a later attempt copies all files"
    assert await threads_of(Workspace.create(directory(root / "dlg_1/files"), "dlg_3", root)) >= 1, "it may be removed"
    assert await threads_of(Workspace.create(EmptyWorkspace(), "dlg_4", root)) == 0
    assert sorted(each.name for each in root.iterdir()) == ["dlg_1", "dlg_2", "dlg_3", "dlg_4"]


@pytest.mark.requirement("P-03")
async def test_a_source_that_does_not_answer_holds_up_no_loop(tmp_path: Path) -> None:
    (folder := tmp_path / "mount").mkdir()
    with waiting_mount(folder) as mount:
        for id in ("dlg_1", "dlg_2"):  # the second time, it is known which disk it is
            mount.asked.clear()
            mount.go.clear()
            creating = asyncio.create_task(Workspace.create(directory(folder / "source"), id, tmp_path / "ws"))
            await until(mount.asked.is_set, 20)
            assert not creating.done()
            assert not mount.go.is_set()
            mount.go.set()
            with pytest.raises(Invalid):
                await creating


async def test_where_work_in_a_directory_took_long_it_is_done_in_threads(tmp_path: Path) -> None:
    def compute_long() -> None:
        stay_on_loop(lambda: True)
        compute(2 * SLOW_SECONDS)

    works = [Work(), Work(compute_long), Work()]
    for work in works:
        await run_short_in([tmp_path], work)
    assert [each.began for each in works] == [[True], [True], [False]]


async def test_a_file_on_the_loop_that_is_not_there_is_an_error(tmp_path: Path, desk: Toolbench) -> None:
    desk.files.is_local = True
    await desk.refusal(ErrorType.FILE_NOT_FOUND, "read_file", path="none")
    await desk.refusal(ErrorType.FILE_NOT_FOUND, "list_directory", path="none")


async def test_changes_are_compared_in_a_thread(tmp_path: Path) -> None:
    """They may be many, and a comparison takes long."""
    compared = list[bool]()

    class Observed(Deadline):
        @property
        def expired(self) -> bool:
            compared.append(is_on_loop())
            return False

    workspace = await Workspace.create(EmptyWorkspace(), "dlg_1", tmp_path)
    await run_short(True, workspace.compare, Observed(60))
    assert True in compared
    workspace.files.write("a", b"1")
    compared.clear()
    facts = await run_short(True, workspace.compare, Observed(60))
    assert [change.path for change in facts.changes] == ["a"]
    assert set(compared) == {False}
    workspace.close()


@asynccontextmanager
async def computes_less_than(seconds: float) -> AsyncGenerator[None]:
    """Fails if the event loop's thread computes for longer at a time within the block."""
    loop = asyncio.get_running_loop()
    last, longest = time.thread_time(), 0.0

    def beat() -> None:
        nonlocal last, longest, beating
        now = time.thread_time()
        last, longest = now, max(longest, now - last)
        beating = loop.call_later(0.001, beat)

    beating = loop.call_soon(beat)
    yield
    beat()
    beating.cancel()
    assert longest < seconds


async def test_a_large_source_holds_up_no_loop_for_long(tmp_path: Path) -> None:
    """Measured as computing time, which other load does not change much."""
    share_threads(asyncio.get_running_loop())
    for folder in range(10):
        (tmp_path / f"source/{folder}").mkdir(parents=True)
        for number in range(500):
            (tmp_path / f"source/{folder}/{number}").touch()
    async with computes_less_than(0.1):
        workspace = await Workspace.create(directory(tmp_path / "source", ignored=False), "dlg_1", tmp_path / "ws")
        workspace.files.write("0/new", b"1")
        outputs, _ = await collect_outputs(workspace, StopSignal())
    assert outputs.of_files["files_modified"] == ["0/new"]
    workspace.close()
