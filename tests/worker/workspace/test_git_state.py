"""What git keeps for itself in a workspace: a look at it changes nothing, a commit does."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deputize.shared.request import DirectoryWorkspace
from deputize.worker.workspace.source import SourceRules, copy_linked_state, linked_state, open_folder
from deputize.worker.workspace.tree_copy import TreeCopy
from deputize.worker.workspace.workspace import Workspace
from tests.worker.workspace.trees import git


def repository(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    git(folder, "init", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "first")
    return folder


def worktree(root: Path) -> Path:
    git(repository(root / "source"), "worktree", "add", "../linked", "-b", "side")
    git(root / "source", "commit", "--allow-empty", "-m", "elsewhere")
    return root / "linked"


def worktree_of_a_bare_repository(root: Path) -> Path:
    git(repository(root / "source"), "clone", "--bare", ".", "../bare.git")
    git(root / "bare.git", "worktree", "add", "../linked", "-b", "side")
    return root / "linked"


def worktree_with_a_configuration(root: Path) -> Path:
    git(repository(root / "source"), "config", "extensions.worktreeConfig", "true")
    git(root / "source", "worktree", "add", "../linked", "-b", "side")
    git(root / "linked", "config", "--worktree", "user.name", "mine")
    return root / "linked"


def submodule(root: Path) -> Path:
    repository(root / "source")
    git(repository(root / "outer"), "submodule", "add", "../source", "linked")
    git(root / "outer/linked", "checkout", "-b", "side")
    return root / "outer/linked"


@pytest.mark.parametrize("make", [worktree, worktree_of_a_bare_repository, worktree_with_a_configuration, submodule])
async def test_the_copy_of_a_linked_folder_is_a_repository_of_its_own(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    source = make(tmp_path)
    (source / "staged.txt").write_text("staged\n")
    git(source, "add", "staged.txt")
    (source / "a.txt").write_text("two\n")
    spec = DirectoryWorkspace(kind="directory", path=str(source))
    workspace = await Workspace.create(spec, "dlg_1", tmp_path / "state")
    try:
        assert git(workspace.path, "status", "--porcelain=v1") == git(source, "status", "--porcelain=v1")
        assert git(workspace.path, "branch", "--show-current") == "side\n"
        assert git(workspace.path, "rev-parse", "--show-toplevel") == f"{workspace.path}\n"
        refs = "for-each-ref", "--format=%(refname) %(objectname)"
        assert git(workspace.path, *refs) == git(source, *refs)
        assert (await workspace.facts()).changes == []
        before = git(source, "rev-parse", "HEAD")
        git(workspace.path, "commit", "-am", "second")
        assert git(workspace.path, "log", "--format=%s") == "second\nfirst\n"
        git(workspace.path, "fsck", "--strict")
        assert git(source, "rev-parse", "HEAD") == before
        owners = {each.stat().st_uid for each in (workspace.path / ".git").rglob("*")}
        assert owners == {workspace.path.stat().st_uid, os.getuid()} or owners == {os.getuid()}
        assert (await workspace.facts()).not_copied == []
    finally:
        await workspace.remove()


def point_to(foreign: Path, source: Path, kind: str) -> None:
    """Makes a folder whose ``.git`` names another repository, some with a state that names it back."""
    if kind == "not allowed":
        git(foreign, "worktree", "add", "../linked")
        return
    state = source / "state"
    state.mkdir(parents=True)
    names = {"file": f"gitdir: {foreign}/.git", "gone": "gitdir: /nonexistent/path"}
    if kind == "link":
        (source / ".git").symlink_to(foreign / ".git")
    else:
        (source / ".git").write_text(names.get(kind, "gitdir: state"))
    (state / "commondir").write_text(f"{foreign}/.git")
    (state / "HEAD").write_text("ref: refs/heads/main")
    if kind == "forged worktree":
        (state / "gitdir").write_text(f"{source}/.git")
    if kind == "forged submodule":
        (state / "config").write_text("[core]\n\tworktree = ..\n")


def test_a_configuration_that_is_a_link_brings_no_file_in(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("[core]\n\tworktree = ..\n\ttoken = abc\n")
    source, files = tmp_path / "source", tmp_path / "files"
    (source / "state").mkdir(parents=True)
    files.mkdir()
    for folder in (source, files):
        (folder / ".git").write_text("gitdir: state")
    (source / "state/config").symlink_to(tmp_path / "secret")
    found = linked_state(source)
    assert found is not None

    def copy(state: Path, target: int, is_wanted: Callable[[str], bool]) -> None:
        with open_folder(state) as fd:
            TreeCopy(fd, target, lambda path, _: is_wanted(path)).run()

    with open_folder(files) as fd:
        copy_linked_state(*found, fd, copy)
    assert (files / ".git/config").is_symlink()


@pytest.mark.parametrize("kind", ["file", "link", "gone", "not allowed", "forged worktree", "forged submodule"])
async def test_a_repository_that_does_not_name_the_folder_is_not_copied_and_this_is_reported(
    tmp_path: Path, kind: str
) -> None:
    foreign, source = repository(tmp_path / "foreign"), tmp_path / "linked"
    point_to(foreign, source, kind)
    spec = DirectoryWorkspace(kind="directory", path=str(source))
    workspace = await Workspace.create(spec, "dlg_1", tmp_path / "state", SourceRules([source]))
    try:
        assert not (workspace.path / ".git").is_dir() or kind in ("link", "not allowed")
        assert kind == "link" or not (workspace.path / ".git/objects").exists()
        why = ".git is a link to a repository that git cannot reach in the run and was not copied"
        assert (await workspace.facts()).not_copied == [why]
    finally:
        await workspace.remove()


async def test_git_status_changes_nothing_and_a_commit_is_reported(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("one\n")
    git(source, "init")
    git(source, "add", ".")
    git(source, "commit", "-m", "first")
    spec = DirectoryWorkspace(kind="directory", path=str(source))
    workspace = await Workspace.create(spec, "dlg_1", tmp_path / "state")
    try:
        index = (workspace.path / ".git/index").read_bytes()
        git(workspace.path, "status")
        assert (workspace.path / ".git/index").read_bytes() != index
        assert (await workspace.facts()).changes == []
        git(workspace.path, "commit", "--allow-empty", "-m", "second")
        assert [change.path for change in (await workspace.facts()).changes] == [".git"]
    finally:
        await workspace.remove()
