"""What copies keep and refuse, and which facts are reported about files that are hard to see or to compare."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import Invalid
from deputize.shared.libc import beneath
from deputize.shared.request import DirectoryWorkspace, EmptyWorkspace
from deputize.shared.workspaces import delete
from deputize.worker.contracts import StopReason, StopSignal
from deputize.worker.run_files import collect_outputs
from deputize.worker.workspace.file_entries import TEMPORARY, temporary_name
from deputize.worker.workspace.manifest import UNBOUNDED, Deadline
from deputize.worker.workspace.patches import MAX_CHANGES, Facts
from deputize.worker.workspace.workspace import Workspace
from tests.runs.bench import Bench, call, say, script
from tests.waiting import until, until_sync

MIB = 1 << 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    return source


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[Workspace]:
    workspace = await Workspace.create(EmptyWorkspace(), "dlg_empty", tmp_path / "state")
    yield workspace
    await workspace.remove()


async def copy_of(source: Path, root: Path, **more: Any) -> Workspace:
    spec = DirectoryWorkspace(kind="directory", path=str(source))
    return await Workspace.create(spec, "dlg_copied", root, **more)


async def changed(workspace: Workspace) -> list[tuple[str, str]]:
    return [(change.path, change.change) for change in (await workspace.facts()).changes]


def deep(top: Path, levels: int, name: str = "d") -> int:
    """Makes so many directories in each other, longer than any path may be; a descriptor of the last one."""
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=fd)
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = inner
    return fd


def put(folder: int, name: str, data: bytes) -> None:
    with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=folder), "wb") as file:
        file.write(data)


# --- copies ------------------------------------------------------------------------------------


async def test_holes_stay_holes(source: Path, tmp_path: Path) -> None:
    with (source / "sparse").open("wb") as file:
        file.seek(100 * MIB)
        file.write(b"middle")
        file.truncate(300 * MIB)
    with (source / "hole").open("wb") as file:
        file.truncate(50 * MIB)
    (source / "plain").write_bytes(os.urandom(3 * MIB))
    workspace = await copy_of(source, tmp_path / "state", max_bytes=4 * MIB)
    try:
        for folder in (workspace.path, workspace.path.with_name("base")):
            for name in ("sparse", "hole", "plain"):
                assert (folder / name).stat().st_size == (source / name).stat().st_size
            assert (folder / "plain").read_bytes() == (source / "plain").read_bytes()
            with (folder / "sparse").open("rb") as file:
                assert file.seek(100 * MIB)
                assert file.read(7) == b"middle\0"
            assert sum(path.stat().st_blocks * 512 for path in folder.iterdir()) < 5 * MIB
    finally:
        await workspace.remove()


async def test_a_copy_has_a_roof(source: Path, tmp_path: Path) -> None:
    (source / "a").write_bytes(b"x" * MIB)
    (source / "b").write_bytes(b"x" * MIB)
    with pytest.raises(
        Invalid, match=r"is too large to be copied: with [ab] it has more than .* GiB \(raise sandbox\.disk"
    ):
        await copy_of(source, tmp_path / "state", max_bytes=MIB + MIB // 2)
    assert [*(tmp_path / "state").iterdir()] == []


@pytest.mark.parametrize(
    ("path", "why"),
    [("/", "it is the root"), ("/proc", "a virtual file system"), ("/sys/kernel", "virtual"), ("/..", "the root")],
)
async def test_what_is_no_directory_of_files_is_refused_at_once(path: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=why) as caught:
        await copy_of(Path(path), tmp_path / "state")
    assert path in caught.value.detail


async def test_trees_of_any_depth_are_copied_and_compared(source: Path, tmp_path: Path) -> None:
    fd = deep(source, 1200, "level")
    put(fd, "last.txt", b"deep\n")
    os.close(fd)
    workspace = await copy_of(source, tmp_path / "state")
    delete(source)  # pytest cannot
    try:
        path = "level/" * 1200
        top = os.open(workspace.path, os.O_RDONLY)
        folder = beneath(top, path.rstrip("/"), os.O_RDONLY | os.O_DIRECTORY)
        put(folder, "new.txt", b"new\n")
        put(folder, "last.txt", b"changed\n")
        os.close(folder)
        os.close(top)
        (workspace.path / "near.txt").write_text("near")
        facts = await workspace.facts()
    finally:
        await workspace.remove()
    assert {(change.path, change.change, change.in_patch) for change in facts.changes} == {
        ("near.txt", "created", True),
        (path + "new.txt", "created", False),
        (path + "last.txt", "modified", False),
    }
    assert all("its path is too long for git" in said for said in facts.left_out)
    assert facts.patch.count("# left out, its path is too long for git: level/level/") == 2


async def test_special_files_that_are_left_out_are_reported(
    bench: Bench, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        model = script(tmp_path, [say("Done.")])
        result = await bench.run(model=model, workspace={"kind": "directory", "path": str(source)})
    assert sorted(result.left_out) == ["pipe is a FIFO and was not copied", "socket is a socket and was not copied"]
    assert not result.truncated


# --- facts -------------------------------------------------------------------------------------


async def test_files_come_in_the_order_of_their_first_change(empty: Workspace) -> None:
    for name in ("m", "z", "a"):
        empty.files.write(name, b"1")
        await empty.note_changes()
    empty.files.write("m", b"2")
    empty.files.write("b", b"1")
    assert [path for path, _ in await changed(empty)] == ["m", "z", "a", "b"]


async def test_files_named_like_our_temporaries_are_reported(empty: Workspace) -> None:
    empty.files.write(f"{TEMPORARY}0011", b"x")
    with temporary_name() as ours:
        (empty.path / ours).write_bytes(b"half")
        assert await changed(empty) == [(f"{TEMPORARY}0011", "created")]
        (empty.path / ours).unlink()


async def test_what_a_dead_worker_was_writing_is_not_taken_over(tmp_path: Path) -> None:
    first = await Workspace.create(EmptyWorkspace(), "dlg_1", tmp_path)
    (first.path / f"{TEMPORARY}{'0' * 16}").write_bytes(b"half")
    (first.path / "done.txt").write_bytes(b"whole")
    first.close()
    second = await Workspace.create(EmptyWorkspace(), "dlg_1", tmp_path, attempt=2)
    assert await changed(second) == [("done.txt", "created")]
    await second.remove()


async def test_changes_of_gits_own_state_are_reported(source: Path, tmp_path: Path) -> None:
    for name in (".git/HEAD", "gone/.git/HEAD", "same/.git/HEAD", "pointer/.git"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("x")
    (source / "a.git").mkdir()
    (source / "a.git/file").write_text("x")
    workspace = await copy_of(source, tmp_path / "state")
    try:
        assert await changed(workspace) == []
        (workspace.path / ".git/hooks").mkdir()
        (workspace.path / ".git/hooks/pre-commit").write_text("#!/bin/sh\nevil\n")
        await workspace.note_changes()
        (workspace.path / "gone/.git/HEAD").unlink()
        (workspace.path / "new/.git").mkdir(parents=True)
        (workspace.path / "new/.git/HEAD").write_text("x")
        (workspace.path / "pointer/.git").write_text("elsewhere")
        (workspace.path / "a.git/file").write_text("y")
        facts = await workspace.facts()
    finally:
        await workspace.remove()
    assert facts.changes[0].path == ".git"
    assert {(change.path, change.change, change.in_patch) for change in facts.changes} == {
        (".git", "modified", False),
        ("gone/.git", "deleted", False),
        ("new/.git", "created", False),
        ("pointer/.git", "modified", False),
        ("a.git/file", "modified", True),
    }
    assert "# left out, git's own state, which a patch cannot contain: .git\n" in facts.patch


async def test_the_result_states_what_the_patch_lacks(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [call("bash", command="head -c 9437184 /dev/urandom > r.bin; echo x > a")], [say("Done.")])
    if bench.services.status.offered.sandbox_problem:
        pytest.skip("no sandbox here")
    result = await bench.run(model=model)
    assert result.truncated
    assert result.left_out == ["r.bin is not in the patch: too large (9437184 bytes)"]
    assert {change.path: (change.in_patch, change.size) for change in result.file_changes} == {
        "r.bin": (False, 9437184),
        "a": (True, 2),
    }


async def test_large_new_texts_cost_no_diff(empty: Workspace) -> None:
    for number in range(6):
        empty.files.write(f"{number}.txt", b"a line\n" * MIB)
    async with asyncio.timeout(20):
        facts = await empty.facts()
    assert [(change.added_lines, change.in_patch) for change in facts.changes] == [(MIB, False)] * 6
    assert facts.patch.count("# left out, too large: ") == 6


async def test_no_more_changes_are_listed_than_a_result_can_carry(empty: Workspace) -> None:
    for number in range(MAX_CHANGES + 3):
        (empty.path / f"{number:05d}").touch()
    facts = await empty.facts()
    assert len(facts.changes) == MAX_CHANGES
    assert "3 more changed files are not listed, nor in the patch" in facts.left_out


async def test_a_comparison_without_time_still_lists_what_changed(empty: Workspace) -> None:
    empty.files.write("a.txt", b"x\n")
    facts = await empty.facts(Deadline(0))
    assert [(change.path, change.change, change.in_patch) for change in facts.changes] == [("a.txt", "created", False)]
    assert facts.patch == "# left out, no time: a.txt\n"
    assert "the comparison ended before it was complete: hashes and line counts may be missing" in facts.left_out
    assert (await empty.facts()).changes[0].new_hash is not None  # nothing of that is remembered


class Endless(Workspace):
    """A workspace whose comparison goes on until its time is over."""

    asked = False

    def compare(self, deadline: Deadline = UNBOUNDED, max_bytes: int = 0, restored: Collection[str] = ()) -> Facts:
        self.asked = True
        until_sync(lambda: deadline.expired)
        return Facts()


@pytest.mark.parametrize("reason", [StopReason.CANCELLED, StopReason.FENCED])
@pytest.mark.parametrize("before", [True, False])
async def test_a_stop_request_shortens_the_ending(tmp_path: Path, reason: StopReason, before: bool) -> None:
    """The allowance is shortened, whether the signal came before the comparison or during it."""
    stop = StopSignal()
    if before:
        stop.set(reason)

    workspace = await Endless.create(EmptyWorkspace(), "dlg_endless", tmp_path)
    ending = asyncio.create_task(collect_outputs(workspace, stop, 1000, hurried=0.1))
    assert isinstance(workspace, Endless)
    await until(lambda: workspace.asked)
    stop.set(reason)
    async with asyncio.timeout(20):
        assert (await ending)[1] == Facts()
    await workspace.remove()
