"""The event loop stays free, whatever disk a run's files are on, and however many they are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from deputize.shared.errors import Invalid
from deputize.shared.request import EmptyWorkspace
from deputize.worker.contracts import Stat, StopSignal
from deputize.worker.run_files import collect_outputs
from deputize.worker.threads import share_threads
from deputize.worker.workspace.files import Files
from deputize.worker.workspace.workspace import Workspace
from tests.runs.toolbench import Toolbench
from tests.waiting import until
from tests.worker.waiting_mount import waiting_mount
from tests.worker.workspace.trees import directory


@pytest.mark.requirement("P-03")
@pytest.mark.parametrize("tool", ["read_file", "list_directory"])
async def test_a_file_system_that_does_not_answer_holds_up_no_loop(tmp_path: Path, desk: Toolbench, tool: str) -> None:
    (await Workspace.create(EmptyWorkspace(), "dlg_1", tmp_path)).close()
    with waiting_mount(tmp_path / "dlg_1/files") as mount:
        workspace = await Workspace.open("dlg_1", tmp_path)
        bench = replace(desk, files=workspace.files)
        mount.asked.clear()
        mount.go.clear()
        calling = asyncio.create_task(bench.call(tool, path="folder"))
        await until(mount.asked.is_set, 20)
        assert not calling.done()
        mount.go.set()
        assert not (await calling).success
        workspace.close()


@pytest.mark.requirement("P-03")
async def test_a_source_that_does_not_answer_holds_up_no_loop(tmp_path: Path) -> None:
    (folder := tmp_path / "mount").mkdir()
    with waiting_mount(folder) as mount:
        mount.asked.clear()
        mount.go.clear()
        creating = asyncio.create_task(Workspace.create(directory(folder / "source"), "dlg_1", tmp_path / "ws"))
        await until(mount.asked.is_set, 20)
        assert not creating.done()
        mount.go.set()
        with pytest.raises(Invalid):
            await creating


@pytest.mark.requirement("P-03")
async def test_a_small_file_is_read_while_all_threads_are_taken(tmp_path: Path, desk: Toolbench) -> None:
    workspace = await Workspace.create(EmptyWorkspace(), "dlg_1", tmp_path)
    workspace.files.write("small", b"a line\n")
    free = Event()
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        taken = threads.submit(free.wait, 20)
        read = await replace(desk, files=workspace.files).call("read_file", path="small")
        assert not taken.done()
        free.set()
    assert "a line" in read.for_model
    workspace.close()


class ChangingFiles(Files):
    """Files that look smaller than they are, as one that is written between two system calls."""

    def stat(self, path: str, *, follow: bool = True) -> Stat | None:
        found = super().stat(path, follow=follow)
        return found and replace(found, size=1)


@pytest.mark.requirement("P-03")
async def test_a_file_that_grows_while_it_is_read_is_read_in_a_thread(tmp_path: Path, desk: Toolbench) -> None:
    (tmp_path / "log").write_bytes(b"a line\n" * 3000)
    with ChangingFiles(tmp_path) as files:
        read = await replace(desk, files=files).call("read_file", path="log", offset=2999)
    assert "3000" in read.for_model


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
