"""How a workspace is made and removed, and what may be copied into one."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from threading import Event

import pytest

from deputize.shared.errors import Invalid
from deputize.shared.request import DirectoryWorkspace, EmptyWorkspace, WorkspaceSpec
from deputize.worker.sandbox import environment
from deputize.worker.workspace.source import SourceRules
from deputize.worker.workspace.tree_copy import CopyStopped, TreeCopy
from deputize.worker.workspace.workspace import Workspace
from tests.processes.ordinary_user import home_of_an_ordinary_user, need_ordinary_user
from tests.waiting import until
from tests.worker.forked import in_child
from tests.worker.workspace.trees import directory, tree


@pytest.mark.requirement("P-03", "S000-007")
async def test_an_empty_workspace_is_empty_and_the_runs_own(empty: Workspace, root: Path) -> None:
    assert empty.files.scan() == []
    assert (await empty.facts()).changes == []
    assert (await empty.facts()).patch == ""
    other = await Workspace.create(EmptyWorkspace(), "dlg_other", root)
    other.files.write("mine", b"1")
    assert empty.files.scan() == []
    other.close()


async def test_a_copy_has_everything_but_what_is_no_file_and_what_is_ours(copied: Workspace, source: Path) -> None:
    expected = tree(source)
    del expected[".deputize/secret"]
    assert tree(copied.path) == expected
    assert (copied.path / ".git/HEAD").read_text() == "ref: refs/heads/main\n"
    assert not (copied.path / "fifo").exists()
    for name in ("src/main.py", "src/deep", "link"):
        ours, theirs = (copied.path / name).lstat(), (source / name).lstat()
        assert (ours.st_mode, ours.st_mtime_ns) == (theirs.st_mode, theirs.st_mtime_ns)
    assert (await copied.facts()).changes == []


NOT_IGNORED = [
    ".gitignore",
    "link",
    "logo.png",
    "out",
    "src/.gitignore",
    "src/deep/run.sh",
    "src/kept.o",
    "src/main.py",
]


async def test_what_gitignore_names_is_left_out_unless_asked_for(source: Path, root: Path) -> None:
    spec = DirectoryWorkspace(kind="directory", path=str(source))
    workspace = await Workspace.create(spec, "dlg_1", root)
    assert sorted(tree(workspace.path)) == NOT_IGNORED
    assert (workspace.path / ".git/HEAD").exists()
    assert (await workspace.facts()).changes == []
    await workspace.remove()


@pytest.mark.parametrize(
    ("exclude", "gone"),
    [
        (["*.png"], {"logo.png"}),
        (["/src/"], {each for each in NOT_IGNORED if each.startswith("src/")}),
        (["deep", "!deep", "src/*.py"], {"src/main.py"}),
        (["*", "!src", "!src/main.py"], {*NOT_IGNORED} - {"src/main.py"}),
    ],
)
async def test_a_request_can_exclude_more(source: Path, root: Path, exclude: list[str], gone: set[str]) -> None:
    workspace = await Workspace.create(directory(source, ignored=False, exclude=exclude), "dlg_1", root)
    assert {*NOT_IGNORED} - tree(workspace.path).keys() == gone
    await workspace.remove()


async def test_nothing_done_in_a_workspace_reaches_its_source(copied: Workspace, source: Path) -> None:
    before = tree(source)
    copied.files.write("src/main.py", b"changed")
    with (copied.path / "logo.png").open("r+b") as file:
        file.write(b"changed in place")
    (copied.path / "built.o").unlink()
    assert tree(source) == before


async def test_links_are_copied_and_never_followed(copied: Workspace) -> None:
    assert (copied.path / "out").readlink() == Path("/etc/passwd")
    assert (copied.path / "link").readlink() == Path("src/main.py")


async def test_only_the_worker_can_enter_and_commands_own_the_files(copied: Workspace, root: Path) -> None:
    assert stat.S_IMODE((root / "dlg_copied").stat().st_mode) == stat.S_IMODE(root.stat().st_mode) == 0o700
    owner = environment.owner() or (os.geteuid(), os.getegid())
    owners = {(path.lstat().st_uid, path.lstat().st_gid) for path in [copied.path, *copied.path.rglob("*")]}
    assert owners == {owner}
    assert {path.lstat().st_uid for path in (root / "dlg_copied/base").rglob("*")} == {os.geteuid()}


async def test_set_user_bits_are_not_copied(source: Path, root: Path) -> None:
    (source / "src/main.py").chmod(0o4755)
    workspace = await Workspace.create(directory(source), "dlg_1", root)
    assert stat.S_IMODE((workspace.path / "src/main.py").stat().st_mode) == 0o755
    await workspace.remove()


async def test_a_source_that_holds_our_workspaces_is_copied_without_them(source: Path) -> None:
    workspace = await Workspace.create(directory(source), "dlg_1", source / "state/workspaces")
    assert [path.name for path in (workspace.path / "state").iterdir()] == []
    await workspace.remove()


@pytest.mark.parametrize(
    ("spec", "pointer", "detail"),
    [
        (
            directory("/no/such/place"),
            "/workspace/path",
            "/no/such/place cannot be opened as a directory: No such file",
        ),
        (directory("/etc/passwd"), "/workspace/path", "/etc/passwd cannot be opened as a directory: Not a directory"),
        (directory("relative/path"), "/workspace/path", "relative/path is not absolute"),
        (directory("/etc"), "/workspace/path", "/etc may not be copied; allowed: "),
    ],
)
async def test_a_workspace_that_cannot_be_made_is_refused_with_its_field(
    spec: WorkspaceSpec, pointer: str, detail: str, source: Path, root: Path
) -> None:
    with pytest.raises(Invalid) as caught:
        await Workspace.create(spec, "dlg_1", root, SourceRules([source]))
    assert caught.value.detail.startswith(detail)
    assert caught.value.errors == [{"pointer": pointer, "detail": caught.value.detail}]
    assert list(root.iterdir()) == []


async def test_a_source_is_judged_by_where_its_links_lead(source: Path, root: Path, tmp_path: Path) -> None:
    (source / "way-out").symlink_to("/etc")
    with pytest.raises(Invalid, match="may not be copied"):
        await Workspace.create(directory(source / "way-out"), "dlg_1", root, SourceRules([source]))
    with pytest.raises(Invalid, match="may not be copied"):
        await Workspace.create(directory(f"{source}/../workspaces-other"), "dlg_1", root, SourceRules([source]))
    (tmp_path / "way-in").symlink_to(source)
    workspace = await Workspace.create(directory(tmp_path / "way-in/src"), "dlg_1", root, SourceRules([source]))
    assert (workspace.path / "main.py").exists()
    await workspace.remove()


@pytest.fixture(autouse=True)
def other_place(tmp_path: Path) -> None:
    (tmp_path / "workspaces-other").mkdir()


async def test_without_allowed_sources_nothing_may_be_copied(source: Path, root: Path) -> None:
    with pytest.raises(Invalid, match="allowed: no directory"):
        await Workspace.create(directory(source), "dlg_1", root, SourceRules([]))


def test_an_unreadable_file_is_named() -> None:
    need_ordinary_user()

    async def create(home: Path) -> str:
        (home / "source").mkdir()
        (home / "source/locked").write_text("x")
        (home / "source/locked").chmod(0)
        with pytest.raises(Invalid) as caught:
            await Workspace.create(directory(home / "source"), "dlg_1", home / "root")
        return caught.value.detail.replace(str(home), "HOME")

    with home_of_an_ordinary_user() as home:
        detail = in_child(lambda: asyncio.run(create(home)), ordinary=True)
    assert detail == "locked below HOME/source cannot be read: Permission denied"


CLOSING = {
    "folder": "mkdir d; echo evil > d/f; chmod 000 d",
    "folder inside another": "mkdir -p d/e; echo evil > d/e/f; chmod 000 d/e d",
    "folder that lists only": "mkdir d; echo evil > d/f; chmod 444 d",
    "folder that is entered only": "mkdir d; echo evil > d/f; chmod 111 d",
    "file": "echo evil > f; chmod 000 f",
    "file that was there": "echo evil > old; chmod 000 old",
    "folder that was there": "echo evil > was/there; chmod 000 was",
    "file that is written only": "echo evil > f; chmod 200 f",
    "nothing but a mode": "chmod 000 old was",
}


@pytest.mark.parametrize("way", CLOSING)
def test_what_a_command_closed_to_its_owner_is_a_fact_all_the_same(way: str, tmp_path: Path) -> None:
    need_ordinary_user()

    async def run(home: Path) -> tuple[list[str], str, list[str]]:
        (home / "source/was").mkdir(parents=True)
        (home / "source/was/there").write_text("good\n")
        (home / "source/old").write_text("good\n")
        workspace = await Workspace.create(directory(home / "source"), "dlg_1", home / "root")
        subprocess.run(["sh", "-c", CLOSING[way]], cwd=workspace.path, check=True)
        await workspace.note_changes()
        facts = await workspace.facts()
        await workspace.remove()
        return [change.path for change in facts.changes], facts.patch, list(facts.left_out)

    as_root = asyncio.run(run(tmp_path))  # what this loads, the child may not be able to read
    with home_of_an_ordinary_user() as home:
        paths, patch, left_out = in_child(lambda: asyncio.run(run(home)), ordinary=True)
    assert (paths, patch, left_out) == as_root
    made = re.search(r"> (\S+);", CLOSING[way])
    assert paths == ([made[1]] if made else [])
    assert ("+evil" in patch) == bool(made)
    assert left_out == []


def test_a_copy_can_be_stopped(source: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    stop = Event()
    stop.set()
    fds = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in (source, tmp_path / "target")]
    with pytest.raises(CopyStopped):
        TreeCopy(fds[0], fds[1], stop=stop).run()
    for fd in fds:
        os.close(fd)
    assert list((tmp_path / "target").iterdir()) == []


async def test_a_creation_that_is_cancelled_leaves_nothing_half_made(source: Path, root: Path) -> None:
    for number in range(2000):
        (source / f"src/{number}").write_text("x")
    creating = asyncio.create_task(Workspace.create(directory(source), "dlg_1", root))
    await until(root.exists)
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert list(root.iterdir()) == []


async def test_a_resumed_run_finds_its_files_and_its_history_of_changes(
    copied: Workspace, source: Path, root: Path
) -> None:
    copied.files.write("z-first", b"1")
    await copied.note_changes()
    copied.files.write("a-second", b"2")
    expected = (await copied.facts()).changes
    copied.close()
    shutil.rmtree(source)
    for resumed in (
        await Workspace.create(directory(source), "dlg_copied", root, attempt=2),
        await Workspace.open("dlg_copied", root),
    ):
        assert (await resumed.facts()).changes == expected
        assert [change.path for change in expected] == ["z-first", "a-second"]
        resumed.close()


async def test_a_removed_workspace_is_gone_whatever_its_modes(root: Path) -> None:
    workspace = await Workspace.create(EmptyWorkspace(), "dlg_1", root)
    subprocess.run(["mkdir", "-p", "/".join(["d" * 10] * 300)], cwd=workspace.path, check=True)
    workspace.files.write("locked/in/f", b"x")
    (workspace.path / "locked").chmod(0)
    await workspace.remove()
    assert list(root.iterdir()) == []
