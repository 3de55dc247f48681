"""What git ignores is not copied and is no change; git itself is the judge."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deputize.shared.listed import tracked_paths
from deputize.shared.request import EmptyWorkspace
from deputize.worker.workspace.patches import MAX_IGNORED
from deputize.worker.workspace.workspace import Workspace
from tests.worker.workspace.trees import copy_of, directory, git, git_apply, tree, visible

FILES = {
    ".gitignore": "*.log\nbuild/\n/packages/*/dist\n",
    "kept.log": "added with force\n",
    "lost.log": "",
    "build/forced/one.js": "added with force\n",
    "build/other.js": "",
    "packages/app/dist/out.js": "",
    "packages/app/.gitignore": "!wanted.log\n",
    "packages/app/wanted.log": "",
    "packages/app/notes.private": "",
    "packages/app/editor.swp": "",
    "packages/app/main.py": "",
    "submodule/dist.log": "tracked by the submodule\n",
    "submodule/other.log": "",
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with files that are tracked although they are ignored, a submodule, and rules of every source."""
    home, folder = tmp_path / "home", tmp_path / "repository"
    (home / ".config/git").mkdir(parents=True)
    (home / ".config/git/ignore").write_text("*.swp\n")
    monkeypatch.setenv("HOME", str(home))
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for each in (folder / "submodule", folder):
        git(each, "init", "-q")
    (folder / ".git/info/exclude").write_text("*.private\n")
    git(folder / "submodule", "add", "-f", "dist.log")
    git(folder / "submodule", "commit", "-qm", "x")
    git(folder, "add", "-f", "kept.log", "build/forced", ".gitignore", "submodule")
    return folder


async def test_a_copy_has_what_git_lists_also_what_is_tracked_though_ignored(repository: Path, root: Path) -> None:
    workspace = await copy_of(repository, root)
    names = {name for name in tree(workspace.path) if not name.startswith("submodule/")}
    assert names == visible(repository)
    assert {"kept.log", "build/forced/one.js", "packages/app/wanted.log"} <= names
    assert [*(workspace.path / "submodule").glob("*.log")] == [workspace.path / "submodule/dist.log"]
    assert (await workspace.facts()).changes == []
    workspace.close()


CONFIGURED = "[core]\n\texcludesFile = {}\n"
PLACES: dict[str, tuple[str, str]] = {
    "the user's": ("~/.gitconfig", CONFIGURED.format("~/mine")),
    "relative": (".git/config", CONFIGURED.format("mine")),
    "the other file of the user": ("~/.config/git/config", CONFIGURED.format("~/mine")),
    "the repository's own": (".git/config", CONFIGURED.format("~/mine")),
    "include": ("~/.gitconfig", "[include]\n\tpath = other"),
    "include of the repository": (".git/config", "[include]\n\tpath = ~/other"),
    "includeIf gitdir": ("~/.gitconfig", '[includeIf "gitdir:**/repository/"]\n\tpath = other'),
    "includeIf gitdir of another": ("~/.gitconfig", '[includeIf "gitdir:**/other/"]\n\tpath = other'),
    "includeIf onbranch": ("~/.gitconfig", '[includeIf "onbranch:wanted"]\n\tpath = other'),
    "the last one": ("~/.gitconfig", CONFIGURED.format("~/none") + "[include]\n\tpath = other"),
    "not readable": (".git/config", "[core"),
}


@pytest.mark.parametrize("place", PLACES)
async def test_what_any_configuration_hides_from_git_is_not_copied(repository: Path, root: Path, place: str) -> None:
    home = repository.parent / "home"
    name, text = PLACES[place]
    for each in (home, repository):
        (each / "mine").write_text("secret*\n")
    (home / "other").write_text(CONFIGURED.format("~/mine"))
    (repository / "secret.env").write_text("KEY=1")
    git(repository, "symbolic-ref", "HEAD", "refs/heads/wanted")
    file = Path(name.replace("~", str(home))) if name.startswith("~") else repository / name
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as configuration:
        configuration.write(text)
    is_listed = place == "not readable" or "secret.env" in visible(repository)
    assert is_listed == (place in ("not readable", "includeIf gitdir of another"))
    workspace = await copy_of(repository, root)
    assert ("secret.env" in tree(workspace.path)) == is_listed
    workspace.close()


async def test_the_users_rules_are_found_below_another_configuration_folder(
    repository: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(repository.parent / "xdg"))
    (repository.parent / "xdg/git").mkdir(parents=True)
    (repository.parent / "xdg/git/ignore").write_text("*.env\n")
    (repository / "secret.env").write_text("KEY=1")
    workspace = await copy_of(repository, root)
    assert "secret.env" not in tree(workspace.path)
    workspace.close()


async def test_of_a_part_of_a_repository_the_rules_above_it_count(repository: Path, root: Path) -> None:
    workspace = await copy_of(repository / "packages/app", root)
    assert tree(workspace.path).keys() == visible(repository, "packages/app") == {".gitignore", "wanted.log", "main.py"}
    for name in ("dist/new.js", "new.swp", "new.private", "new.py"):
        (workspace.path / name).parent.mkdir(exist_ok=True)
        (workspace.path / name).write_text("new")
    facts = await workspace.facts()
    assert [change.path for change in facts.changes] == ["new.py"]
    assert {*facts.ignored} == {"dist/new.js", "new.swp", "new.private"}
    workspace.close()


@pytest.mark.parametrize("rules", ["build/\n", "*\n"])
async def test_a_directory_that_is_itself_ignored_was_asked_for(repository: Path, root: Path, rules: str) -> None:
    (repository / ".gitignore").write_text(rules)  # "*" is what people have who keep their home in git
    workspace = await copy_of(repository / "build", root)
    assert tree(workspace.path).keys() == {"forced/one.js", "other.js"}
    workspace.close()


async def test_a_worktree_has_the_index_and_the_rules_of_its_repository(repository: Path, root: Path) -> None:
    git(repository, "commit", "-qm", "x")
    git(repository, "worktree", "add", "-q", "../other")
    other = repository.parent / "other"
    (other / "a.private").write_text("")
    workspace = await copy_of(other, root)
    assert {"kept.log", "build/forced/one.js"} <= tree(workspace.path).keys()
    assert "a.private" not in tree(workspace.path)
    workspace.close()


async def test_what_a_run_newly_made_and_git_ignores_is_no_change(repository: Path, root: Path) -> None:
    workspace = await copy_of(repository, root)
    (workspace.path / "kept.log").write_text("changed")
    for name in ("src/main.py", "src/deep.log", "build/new.js", "kept/.gitignore"):
        (workspace.path / name).parent.mkdir(exist_ok=True)
        (workspace.path / name).write_text("*\n")
    facts = await workspace.facts()
    assert {change.path for change in facts.changes} == {"kept.log", "src/main.py"}
    assert ({*facts.ignored}, facts.ignored_count) == ({"src/deep.log", "build/new.js", "kept/.gitignore"}, 3)
    assert (facts.left_out, "deep.log" in facts.patch) == ([], False)
    assert git_apply(facts.patch, repository) == ""
    workspace.close()


async def test_very_many_ignored_files_push_no_change_out(root: Path) -> None:
    workspace = await Workspace.create(EmptyWorkspace(), "dlg_1", root)
    (workspace.path / "modules").mkdir()
    for number in range(MAX_IGNORED + 5):
        (workspace.path / f"modules/{number}").write_text("x" * 4000)  # more than a patch may have
    await workspace.note_changes()
    (workspace.path / ".gitignore").write_text("modules\n")
    (workspace.path / "main.py").write_text("print()\n")
    facts = await workspace.facts()
    assert {(change.path, change.in_patch) for change in facts.changes} == {(".gitignore", True), ("main.py", True)}
    assert (len(facts.ignored), facts.ignored_count) == (MAX_IGNORED, MAX_IGNORED + 5)
    workspace.close()


async def test_where_ignored_files_were_asked_for_they_are_changes_also_for_who_goes_on(
    repository: Path, root: Path
) -> None:
    first = await Workspace.create(directory(repository), "dlg_1", root)
    second = await Workspace.create(directory(first.path), "dlg_2", root)
    for workspace in (first, second):
        (workspace.path / "new.log").write_text("new")
        assert [change.path for change in (await workspace.facts()).changes] == ["new.log"]
        workspace.close()


async def test_a_copy_of_a_workspace_has_its_ignored_files_and_its_rules(repository: Path, root: Path) -> None:
    first = await copy_of(repository / "packages/app", root)
    (first.path / "made.swp").write_text("")
    second = await Workspace.create(directory(first.path), "dlg_2", root)
    (second.path / "more.swp").write_text("")
    assert "made.swp" in tree(second.path)
    assert (await second.facts()).ignored == ["more.swp"]
    for workspace in (first, second):
        workspace.close()


@pytest.mark.parametrize(
    "form",
    [
        ["update-index", "--split-index"],
        ["update-index", "--untracked-cache"],
        ["update-index", "--skip-worktree", "kept.log"],
        ["update-index", "--assume-unchanged", "kept.log"],
        ["sparse-checkout", "set", "--cone", "--sparse-index", "build", "packages"],
        ["-c", "core.fsmonitor=true", "-c", "index.version=4", "add", ".gitignore"],
    ],
    ids=" ".join,
)
async def test_any_form_of_the_index_tracks_what_git_lists(repository: Path, root: Path, form: list[str]) -> None:
    git(repository, "commit", "-qm", "x")
    git(repository, *form)
    git(repository, "rm", "-q", "--cached", "build/forced/one.js")  # in the shared part of a split index it remains
    workspace = await copy_of(repository, root)
    names = {name for name in tree(workspace.path) if not name.startswith("submodule/")}
    assert names == visible(repository)
    assert "kept.log" in names
    assert "build/forced/one.js" not in names
    workspace.close()


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_the_index_is_read_as_git_reads_it(tmp_path: Path, version: int, kind: str) -> None:
    git(tmp_path, "init", "-q", f"--object-format={kind}")
    names = ["a", "ab/" + "long" * 60 + "/x", "ab/y", "né w", "z" * 255, *(f"d/{number:o}" * 2 for number in range(99))]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    git(tmp_path, "add", "." if version != 3 else "ab")
    if version == 3:
        git(tmp_path, "add", "--intent-to-add", ".")
    git(tmp_path, "update-index", f"--index-version={version}")
    assert (tmp_path / ".git/index").read_bytes()[7] == version
    listed = {*git(tmp_path, "ls-files", "-z").split("\0")} - {""}
    parents = {path.as_posix() for name in listed for path in Path(name).parents} - {"."}
    assert tracked_paths(tmp_path) == listed | parents


@pytest.mark.parametrize("data", [b"", b"DIRC", b"DIRC\0\0\0\x02\0\0\0\x09" + bytes(30), b"x" * 99, b"gitdir: \xff/\0"])
def test_an_index_that_is_none_tracks_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/index").write_bytes(data)
    assert tracked_paths(tmp_path) == frozenset()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/.git").write_bytes(data)
    assert tracked_paths(tmp_path / "other") == frozenset()


def test_a_pipe_in_place_of_an_index_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git/index")
    assert tracked_paths(tmp_path) == frozenset()
