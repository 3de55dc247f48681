"""A folder that is used as a repository: nothing of its state leads git out of the allowed roots.

The private repository lies outside. Each way may be another author's, and plain git follows most of them.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import Invalid, RepositoryFailed
from deputize.shared.git.command import shared_by_worktrees
from deputize.shared.git.folder import state_of
from deputize.shared.git.remote import remote_of
from tests.network.git_server import git, make_repository
from tests.shared.git.cloning import cloned, settings

Way = Callable[[Path, Path], None]


def copied(folder: Path, *names: str) -> None:
    """Copies parts of the private state's form into a bare-looking folder."""
    for name in ("HEAD", "config"):
        shutil.copyfile(folder.parents[1] / f"private/.git/{name}", folder / name)
    for name in ("objects", "refs"):
        if name not in names:
            (folder / name).mkdir()


def bare_commondir(folder: Path, private: Path) -> None:
    copied(folder)
    (folder / "commondir").write_text(f"{private}/.git\n")


def bare_commondir_relative(folder: Path, private: Path) -> None:
    copied(folder)
    (folder / "commondir").write_text(os.path.relpath(private / ".git", folder))


def git_commondir(folder: Path, private: Path) -> None:
    git(folder, "init", "-q")
    (folder / ".git/commondir").write_text(f"{private}/.git\n")


def gitfile(folder: Path, private: Path) -> None:
    (folder / ".git").write_text(f"gitdir: {private}/.git\n")


def gitfile_inside_a_bare_one(folder: Path, private: Path) -> None:
    """git looks there first."""
    copied(folder)
    (folder / ".git").write_text(f"gitdir: {private}/.git\n")


def worktree_of_another(folder: Path, private: Path) -> None:
    state = folder / "state"
    state.mkdir()
    shutil.copyfile(private / ".git/HEAD", state / "HEAD")
    (state / "commondir").write_text(f"{private}/.git\n")
    (folder / ".git").write_text("gitdir: state\n")


def linked(name: str) -> Way:
    def way(folder: Path, private: Path) -> None:
        copied(folder, name)
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(private / ".git" / name)

    way.__name__ = f"link_{name.replace('/', '_')}"
    return way


def linked_folder_of_objects(folder: Path, private: Path) -> None:
    copied(folder)
    for each in (private / ".git/objects").iterdir():
        (folder / "objects" / each.name).symlink_to(each)


def linked_file_of_objects(folder: Path, private: Path) -> None:
    copied(folder)
    for each in (private / ".git/objects").glob("??/*"):
        (folder / "objects" / each.parent.name).mkdir(exist_ok=True)
        (folder / "objects" / each.parent.name / each.name).symlink_to(each)


def linked_ref(folder: Path, private: Path) -> None:
    copied(folder)
    (folder / "refs/heads").mkdir()
    (folder / "refs/heads/main").symlink_to(private / ".git/refs/heads/main")


def alternates(text: str) -> Way:
    def way(folder: Path, private: Path) -> None:
        copied(folder)
        (folder / "objects/info").mkdir()
        (folder / "objects/info/alternates").write_text(text.format(private / ".git/objects"))

    way.__name__ = f"alternates_{text}"
    return way


def alternates_of_alternates(folder: Path, private: Path) -> None:
    alternates("../more\n")(folder, private)
    (folder / "more/info").mkdir(parents=True)
    (folder / "more/info/alternates").write_text(f"# x\n{private}/.git/objects\n")


def alternates_by_a_link_and_dots(folder: Path, private: Path) -> None:
    """git removes the dots first; a file system follows the link first."""
    deep = folder / "a/b/c/d/e"
    deep.mkdir(parents=True)
    (folder / "objects").mkdir()
    (folder / "objects/way").symlink_to(deep)
    alternates(f"way/../{os.path.relpath(private / '.git/objects', folder / 'objects')}\n")(folder, private)


def too_long_alternates(folder: Path, private: Path) -> None:
    alternates("#" * 70_000 + "\n{}\n")(folder, private)


WAYS: list[Way] = [
    *(bare_commondir, bare_commondir_relative, git_commondir, gitfile, gitfile_inside_a_bare_one, worktree_of_another),
    *map(linked, ("objects", "refs", "HEAD", "packed-refs", "config", "info", "shallow")),
    *(linked_folder_of_objects, linked_file_of_objects, linked_ref, alternates_of_alternates, too_long_alternates),
    *map(alternates, ("{}\n", '"{}"\n', "/nowhere\n{}", "{}/../../.git/objects/\n")),
]


@pytest.fixture
def private(tmp_path: Path) -> Path:
    made = make_repository(tmp_path / "private", {"secret": "x"})
    git(made, "pack-refs", "--all")
    git(made, "update-ref", "refs/heads/main", "HEAD")
    return made


def of_root(tmp_path: Path) -> dict[str, Any]:
    return {"workspace_sources": [tmp_path / "allowed"]}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_way_leads_out_of_the_root(tmp_path: Path, private: Path, way: Way) -> None:
    folder = tmp_path / "allowed/docs"
    folder.mkdir(parents=True)
    way(folder, private)
    chosen = settings(tmp_path / "home", **of_root(tmp_path))
    with pytest.raises((Invalid, RepositoryFailed)) as refused, cloned(chosen, str(folder)):
        pass
    assert isinstance(refused.value, Invalid) or refused.value.kind in ("repository_forbidden", "repository_not_found")


@pytest.mark.parametrize("way", [bare_commondir, git_commondir, worktree_of_another])
def test_only_a_worktree_shares_the_state_of_another_repository(tmp_path: Path, private: Path, way: Way) -> None:
    """Also where the other one may be read."""
    folder = tmp_path / "allowed/docs"
    folder.mkdir(parents=True)
    way(folder, private)
    with pytest.raises(RepositoryFailed, match="only a worktree may share the state"):
        state_of(folder, lambda _: None)


def test_plain_git_follows_such_a_way(tmp_path: Path, private: Path) -> None:
    """Otherwise the test above would see nothing."""
    folder = tmp_path / "allowed/docs"
    folder.mkdir(parents=True)
    bare_commondir(folder, private)
    git(tmp_path, "clone", "-q", str(folder), "stolen")
    assert (tmp_path / "stolen/secret").read_text() == "x"


def test_what_would_block_git_is_refused(tmp_path: Path) -> None:
    for name in ("HEAD", "packed-refs", "refs/heads/x", "objects/info/alternates", "config", "commondir"):
        folder = make_repository(tmp_path / name.replace("/", "-"), {"a": "x"})
        path = folder / ".git" / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        with pytest.raises(RepositoryFailed, match=r"git would wait for it|is not a git repository"):
            state_of(folder, lambda _: None)


def test_a_socket_in_a_state_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_repository(tmp_path / "r", {"a": "x"})
    monkeypatch.chdir(folder / ".git")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("shallow")
        with pytest.raises(RepositoryFailed, match="neither a file nor a folder"):
            state_of(folder, lambda _: None)


def test_a_folder_beside_whose_state_git_looks_first_is_refused(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "r", {"a": "x"})
    (folder / ".git/.git").mkdir()
    with pytest.raises(RepositoryFailed, match="git would look for its state in"):
        state_of(folder, lambda _: None)


def test_a_state_that_cannot_be_read_or_has_too_many_files_is_refused(tmp_path: Path) -> None:
    folder, first, second = make_repository(tmp_path / "r", {"a": "x"}), tmp_path / "first", tmp_path / "second"
    (folder / ".git/objects/info").mkdir(exist_ok=True)
    (folder / ".git/objects/info/alternates").write_text(f"{first}\n{second}\n")
    first.mkdir()
    with pytest.raises(RepositoryFailed, match="first cannot be read: No such file"):
        state_of(folder, lambda place: first.rmdir() if place == second else None)
    with pytest.raises(RepositoryFailed, match="its state has more than 3 files"):
        state_of(folder, lambda _: None, 3)


def test_states_of_every_usual_form_are_found(tmp_path: Path) -> None:
    seen = list[Path]()
    plain = make_repository(tmp_path / "plain", {"a": "x"})
    git(plain, "worktree", "add", "-q", "../tree", "-b", "other")
    git(tmp_path, "clone", "-q", "--bare", "plain", "bare.git")
    git(tmp_path, "clone", "-q", "--separate-git-dir", "apart", "plain", "separate")
    git(tmp_path, "clone", "-q", "--shared", "plain", "borrowing")
    assert state_of(plain, seen.append) == plain / ".git"
    assert state_of(tmp_path / "tree", seen.append) == plain / ".git/worktrees/tree"
    assert state_of(tmp_path / "bare.git", seen.append) == tmp_path / "bare.git"
    assert state_of(tmp_path / "separate", seen.append) == tmp_path / "apart"
    assert state_of(tmp_path / "borrowing", seen.append) == tmp_path / "borrowing/.git"
    assert {plain / ".git", plain / ".git/objects"} <= {*seen}
    assert shared_by_worktrees(plain / ".git/worktrees/tree").resolve() == plain / ".git"
    chosen = settings(tmp_path / "home")
    for name in ("plain", "tree", "bare.git", "separate", "borrowing"):
        with cloned(chosen, str(tmp_path / name)) as clone:
            assert (clone.files / "a").read_text() == "x"
    assert remote_of(str(plain), chosen).address == str(plain / ".git")


def test_a_head_that_is_a_link_to_a_branch_is_one(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "r", {"a": "x"})
    (folder / ".git/HEAD").unlink()
    (folder / ".git/HEAD").symlink_to("refs/heads/main")
    assert state_of(folder, lambda _: None) == folder / ".git"


@pytest.mark.parametrize(("named", "is_read"), [("../..\r\n", True), ("../..\n\n", True), ("../.. \n", False)])
def test_what_a_worktree_shares_is_named_as_git_reads_it(tmp_path: Path, *, named: str, is_read: bool) -> None:
    plain = make_repository(tmp_path / "plain", {"a": "x"})
    git(plain, "worktree", "add", "-q", "../tree", "-b", "other")
    state = plain / ".git/worktrees/tree"
    (state / "commondir").write_bytes(named.encode())
    assert (shared_by_worktrees(state).resolve() == plain / ".git") is is_read
    done = subprocess.run(["git", "-C", tmp_path / "tree", "rev-parse", "HEAD"], capture_output=True)
    assert (done.returncode == 0) is is_read
