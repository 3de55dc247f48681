"""Snapshots: every state of a run's files can be restored, byte for byte, whatever became of workers in between."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deputize.shared.errors import Conflict
from deputize.shared.request import EmptyWorkspace
from deputize.shared.runs.record import FilesOf
from deputize.worker.workspace.generation import Generation, restore
from deputize.worker.workspace.manifest import Deadline
from deputize.worker.workspace.objects import MAX_FILE_BYTES, MAX_OBJECTS, Objects
from deputize.worker.workspace.snapshots import History, read_log
from deputize.worker.workspace.step_changes import MAX_CHANGES, MAX_DIFF_CHARS, StepChanges
from deputize.worker.workspace.tree_copy import CopyTally
from deputize.worker.workspace.workspace import Workspace
from tests.worker.workspace.trees import TREES, copy_of, directory, git, git_apply, plant, tree


async def restored(earlier: Path, before: int | None, id: str = "dlg_again") -> Workspace:
    """A new workspace with the files of another one, as they were before that turn."""
    fill = partial(restore, earlier.parent, FilesOf(earlier.name, before), tally=CopyTally())
    return await Workspace.create(EmptyWorkspace(), id, earlier.parent, restore=fill)


async def step(workspace: Workspace, turn: int, name: str = "") -> StepChanges | None:
    workspace.snapshots.turn = lambda: turn
    return await workspace.note_changes(name or f"step {turn}")


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(states=st.lists(TREES, min_size=2, max_size=4), lost=st.integers(1, 4))
def test_what_is_restored_of_each_step_is_the_tree_after_it(
    states: list[dict[str, tuple[str, bytes]]], lost: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("trees")
    (folder / "source").mkdir()
    plant(folder / "source", states[0])

    async def work() -> None:
        workspace = await Workspace.create(directory(folder / "source"), "dlg_1", folder / "root")
        for turn, wanted in enumerate(states[1:], 1):
            plant(workspace.path, wanted)
            if turn == lost:  # before its snapshot
                workspace.close()
                workspace = await Workspace.create(directory(folder / "source"), "dlg_1", folder / "root", attempt=2)
            changes = await step(workspace, turn)
            before = states[turn - 1]
            named = (
                {each.path for each in changes.changes} | {each.from_ for each in changes.changes} if changes else {}
            )
            assert {*named} - {None} == {path for path in {*before, *wanted} if before.get(path) != wanted.get(path)}
        workspace.close()
        for turn, wanted in enumerate(states, 1):
            again = await restored(folder / "root/dlg_1", turn)
            assert tree(again.path) == wanted
            shutil.copytree(folder / "source", folder / "patched", symlinks=True)
            assert git_apply((await again.facts()).patch, folder / "patched") == ""
            assert tree(folder / "patched") == wanted
            shutil.rmtree(folder / "patched")
            await again.remove()

    asyncio.run(work())
    shutil.rmtree(folder)


async def test_restored_files_are_the_sandboxes_own_with_all_permissions(copied: Workspace, root: Path) -> None:
    copied.files.write("new/deep/secret", b"x")
    (copied.path / "new/deep/secret").chmod(0o640)
    (copied.path / "new/to").symlink_to("deep")
    await step(copied, 1)
    again = await restored(root / "dlg_copied", 2)
    for name in ("src/main.py", "new", "new/deep", "new/deep/secret"):
        ours, theirs = ((each.path / name).lstat() for each in (again, copied))
        assert (ours.st_uid, ours.st_gid, ours.st_mode) == (theirs.st_uid, theirs.st_gid, theirs.st_mode), name
    assert (again.path / "new/to").lstat().st_uid == (again.path / "new").stat().st_uid
    assert stat.S_IMODE((root / "dlg_again/objects").stat().st_mode) == 0o700
    again.close()


@pytest.mark.parametrize("cut", [1, 20, 60])
async def test_a_worker_killed_while_it_wrote_a_snapshot_spoils_none(empty: Workspace, root: Path, cut: int) -> None:
    for turn in (1, 2):
        empty.files.write(f"{turn}", b"x")
        await step(empty, turn)
    empty.close()
    log = Generation(root / "dlg_empty", 1).log
    log.write_bytes(log.read_bytes()[:-cut])
    second = await Workspace.create(EmptyWorkspace(), "dlg_empty", root, attempt=2)
    changes = await step(second, 2)
    assert changes is not None
    assert [each.path for each in changes.changes] == ["2"]
    second.files.write("3", b"x")
    await step(second, 3)
    second.close()
    for turn, paths in enumerate(([], ["1"], ["1", "2"], ["1", "2", "3"]), 1):
        again = await restored(root / "dlg_empty", turn)
        assert sorted(tree(again.path)) == paths
        await again.remove()


async def test_a_step_that_was_recorded_before_its_worker_was_lost_has_the_same_changes_again(
    empty: Workspace, root: Path
) -> None:
    empty.files.write("a", b"x\n")
    first = await step(empty, 1)
    empty.close()
    second = await Workspace.create(EmptyWorkspace(), "dlg_empty", root, attempt=2)
    assert await step(second, 1) == first
    assert first is not None
    second.close()


async def test_a_worker_without_its_lease_changes_no_snapshot_of_the_next_attempt(empty: Workspace, root: Path) -> None:
    empty.files.write("a", b"1")
    await step(empty, 1)
    second = await Workspace.create(EmptyWorkspace(), "dlg_empty", root, attempt=2)
    empty.files.write("a", b"2")
    empty.files.write("b", b"2")
    await step(empty, 2)
    second.files.write("c", b"3")
    await step(second, 2)
    second.close()
    again = await restored(root / "dlg_empty", 3)
    assert tree(again.path) == {"a": ("file", b"1"), "c": ("file", b"3")}
    again.close()


async def test_a_lost_content_is_named_and_nothing_is_restored_in_its_place(empty: Workspace, root: Path) -> None:
    empty.files.write("a", b"1")
    await step(empty, 1)
    empty.close()
    (found,) = (root / "dlg_empty/objects").iterdir()
    found.write_bytes(b"2")
    with pytest.raises(Conflict, match=r"cannot be restored: .*\ba\b"):
        await restored(root / "dlg_empty", 2)
    found.unlink()
    with pytest.raises(Conflict, match="cannot be restored"):
        await restored(root / "dlg_empty", 2)
    assert [path.name for path in root.iterdir()] == ["dlg_empty"]


async def test_what_exceeds_the_bounds_is_not_kept_and_named_until_it_is_gone(empty: Workspace) -> None:
    with (empty.path / "large").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    changes = await step(empty, 1)
    assert changes is not None
    assert changes.diff == "# not shown: large\n"
    turns = empty.snapshots.history.turns
    assert [turns.lacks(turn) for turn in (1, 2)] == ["", ""]  # the last state is that of the files themselves
    (empty.path / "large").rename(empty.path / "moved")
    await step(empty, 2)
    (empty.path / "moved").unlink()
    await step(empty, 3)
    assert [empty.snapshots.history.turns.lacks(turn) for turn in range(1, 5)] == ["", "large", "moved", ""]


def test_a_run_keeps_so_much_and_not_more(tmp_path: Path) -> None:
    objects = Objects(tmp_path)
    for number in range(MAX_OBJECTS):
        objects.note(str(number), 0)
    with Path("/dev/null").open("rb") as nothing:
        assert objects.put(nothing) is None
    with Path("/dev/zero").open("rb") as endless:  # as a file that grows
        assert Objects(tmp_path).put(endless) is None
    full = Objects(tmp_path)
    full.note("others", 256 << 20)
    (tmp_path / "x").write_bytes(b"x")
    with (tmp_path / "x").open("rb") as file:
        assert full.put(file) is None
    assert list((tmp_path / "objects").iterdir()) == []


async def test_an_end_without_time_keeps_no_contents_but_what_changed(empty: Workspace, root: Path) -> None:
    empty.snapshots.turn = lambda: 1
    empty.files.write("a", b"x")
    await empty.facts(Deadline(0))
    (snapshot,) = read_log(Generation(root / "dlg_empty", 1).log)
    assert [(path, kept and kept.sha256) for path, kept in snapshot.changed.items()] == [("a", None)]


async def test_gits_state_of_the_start_is_kept_before_it_can_change(tmp_path: Path, root: Path) -> None:
    source = tmp_path / "repository"
    source.mkdir()
    git(source, "init", "-q")
    (source / "a").write_text("1")
    git(source, "add", "a")
    git(source, "commit", "-qm", "first")
    workspace = await copy_of(source, root)
    await workspace.keep_start()
    assert not workspace.snapshots.history.turns.last
    (workspace.path / "a").write_text("2")
    git(workspace.path, "commit", "-qam", "second")
    changes = await step(workspace, 1)
    assert changes is not None
    assert {each.path: each.change for each in changes.changes} == {".git": "modified", "a": "modified"}
    await workspace.keep_start()  # nothing: it is not there any more
    for turn, subjects in ((1, ["first"]), (2, ["second", "first"])):
        again = await restored(root / "dlg_1", turn)
        assert git(again.path, "log", "--format=%s").split() == subjects
        assert git(again.path, "status", "--porcelain") == ""
        assert {each.path for each in (await again.facts()).changes} == ({".git", "a"} if turn == 2 else set())
        await again.remove()
    workspace.close()


@pytest.mark.parametrize("end", [False, True])
async def test_a_restored_run_knows_where_it_began(copied: Workspace, root: Path, end: bool) -> None:
    copied.files.write("a", b"1")
    await step(copied, 1)
    second = await restored(root / "dlg_copied", None if end else 2, "dlg_2")
    second.files.write("a", b"2")
    await step(second, 1)
    for turn, data in ((1, b"1"), (2, b"2")):
        third = await restored(root / "dlg_2", turn, "dlg_3")
        assert (third.path / "a").read_bytes() == data
        assert [each.path for each in (await third.facts()).changes] == ["a"]
        await third.remove()
    assert History.before(Generation(root / "dlg_2", 1).log, 1).turns.last == 0
    second.close()


# --- what a step changed -----------------------------------------------------------------------


async def test_a_step_is_described_by_its_paths_their_lines_and_a_diff(copied: Workspace) -> None:
    await step(copied, 1)
    copied.files.write("src/main.py", b"one\n2\nthree\n")
    copied.files.write("new", b"a\nb\n")
    copied.files.write(".deputize/own", b"x")
    (copied.path / "logo.png").rename(copied.path / "logo2.png")
    (copied.path / "src/deep/run.sh").unlink()
    (copied.path / "built.o").chmod(0o755)
    (copied.path / "raw").write_bytes(b"\0\1")
    changes = await step(copied, 2)
    assert changes is not None
    assert {each.path: (each.change, each.added, each.removed) for each in changes.changes} == {
        "src/main.py": ("modified", 1, 1),
        "new": ("created", 2, 0),
        "logo2.png": ("renamed", None, None),
        "src/deep/run.sh": ("deleted", 0, 1),
        "built.o": ("modified", 0, 0),
        "raw": ("created", None, None),
    }
    assert next(each.from_ for each in changes.changes if each.path == "logo2.png") == "logo.png"
    assert "-two\n+2\n" in changes.diff
    assert "old mode 100644\nnew mode 100755\n" in changes.diff
    assert "# not shown: raw\n" in changes.diff
    copied.files.write("src/main.py", b"one\ntwo\nthree\n")
    back = await step(copied, 3)
    assert back is not None
    assert back.diff.endswith("-2\n+two\n three\n")
    assert await step(copied, 4) is None


async def test_many_and_long_changes_are_bounded_and_counted(empty: Workspace) -> None:
    for number in range(MAX_CHANGES + 5):
        empty.files.write(f"{number:03}", b"a line of a file\n" * 50)
    changes = await step(empty, 1)
    assert changes is not None
    assert (len(changes.changes), changes.more) == (MAX_CHANGES, 5)
    assert {each.added for each in changes.changes} == {50}
    assert len(changes.diff) < MAX_DIFF_CHARS + 100
    assert changes.diff.endswith(" characters]\n")
    empty.files.write("odd \udcff", b"x\n" * 200_000)
    named = await step(empty, 2)
    assert named is not None
    assert [(each.path, each.added) for each in named.changes] == [("odd \\xff", None)]


async def test_what_is_secret_is_masked_before_it_is_cut(empty: Workspace) -> None:
    secret = "s3cret" * 20
    lines = b"x\n" * (MAX_DIFF_CHARS // 3 - 60)
    empty.files.write("a", lines + f"{secret}\n".encode() * 20)
    changes = await empty.note_changes("one", lambda text: text.replace(secret, "***"))
    assert changes is not None
    assert "***" in changes.diff
    assert "s3cret" not in changes.diff


async def test_a_full_disk_costs_the_content_and_not_the_run(empty: Workspace, root: Path) -> None:
    (root / "dlg_empty/objects").write_bytes(b"no folder")  # as with no room: nothing can be stored
    empty.files.write("a", os.urandom(10))
    changes = await step(empty, 1)
    assert changes is not None
    assert [each.path for each in changes.changes] == ["a"]
    assert [change.path for change in (await empty.facts()).changes] == ["a"]
