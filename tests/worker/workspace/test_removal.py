"""A workspace is not removed while another one is copied from it, and its size on disk is known."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event

import pytest

from deputize.shared.errors import Invalid
from deputize.shared.request import EmptyWorkspace
from deputize.worker.workspace.removal import delete_unused, disk_bytes, in_use
from deputize.worker.workspace.source import held_source, open_folder
from deputize.worker.workspace.tree_copy import CopyTally
from deputize.worker.workspace.workspace import Workspace
from tests.worker.workspace.trees import directory


class HeldTally(CopyTally):
    """Stops the copy at its first file until it may go on."""

    def __init__(self, begun: Event, go_on: Event) -> None:
        self._begun, self._go_on = begun, go_on
        super().__init__()

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "bytes" and value:
            self._begun.set()
            self._go_on.wait(60)


async def test_the_files_of_a_workspace_stay_while_they_are_copied(root: Path) -> None:
    first = await Workspace.create(EmptyWorkspace(), "dlg_1", root)
    (first.path / "a.txt").write_text("mine")
    first.close()
    begun, go_on = Event(), Event()
    copy = Workspace.create(directory(first.path), "dlg_2", root, tally=HeldTally(begun, go_on))
    creating = asyncio.create_task(copy)
    assert await asyncio.to_thread(begun.wait, 60)
    is_deleted = delete_unused(root / "dlg_1")
    go_on.set()
    second = await creating
    assert not is_deleted
    assert (second.path / "a.txt").read_text() == "mine"
    second.close()
    assert delete_unused(root / "dlg_1")
    assert [path.name for path in root.iterdir()] == ["dlg_2"]


def test_many_may_copy_at_once_and_what_is_gone_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "dlg_1"
    folder.mkdir()
    with in_use(folder), in_use(folder):
        assert not delete_unused(folder)
    assert delete_unused(folder)
    assert delete_unused(folder)
    with pytest.raises(FileNotFoundError), in_use(folder):
        pass


async def test_a_source_that_was_removed_just_now_is_reported(root: Path) -> None:
    first = await Workspace.create(EmptyWorkspace(), "dlg_1", root)
    with open_folder(first.path) as source:
        real = Path(f"/proc/self/fd/{source}").readlink()
        first.close()
        assert delete_unused(root / "dlg_1")
        assert Path(f"/proc/self/fd/{source}").readlink() != real  # as the kernel shows
        with pytest.raises(Invalid, match="/x was removed"), held_source("/x", source, root / "dlg_2"):
            pass


async def test_the_size_on_disk_counts_no_holes(root: Path) -> None:
    workspace = await Workspace.create(EmptyWorkspace(), "dlg_1", root)
    before = workspace.disk_bytes() or 0
    with (workspace.path / "holes").open("wb") as file:
        file.truncate(1 << 40)
    (workspace.path / "data").write_bytes(bytes(range(256)) * 4096)
    await workspace.note_changes()
    assert before + (2 << 20) <= (workspace.disk_bytes() or 0) < before + (3 << 20)  # the snapshot has it, too
    assert (1 << 20) <= await workspace.size(1 << 19) < (2 << 20)
    assert await workspace.size(2 << 40) > (1 << 40)  # not measured
    workspace.close()
    assert disk_bytes(root / "none") is None


async def test_what_is_taken_on_disk_has_hard_links_once(root: Path) -> None:
    workspace = await Workspace.create(EmptyWorkspace(), "dlg_1", root)
    workspace.files.write("a", b"x" * 100_000)
    workspace.files.write("deep/b", b"x" * 5000)
    (workspace.path / "deep/c").hardlink_to(workspace.path / "a")
    (workspace.path / "link").symlink_to("a")
    (workspace.path / ".deputize").mkdir()
    (workspace.path / ".deputize/notes").write_bytes(b"x" * 9000)
    assert workspace.disk_bytes() == disk_bytes(root / "dlg_1")
    workspace.close()
