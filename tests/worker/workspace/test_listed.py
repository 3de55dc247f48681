"""A copy has what git lists, for any tree and any rules; git is the judge, and starts nothing of a stranger's."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deputize.shared.errors import Invalid
from deputize.worker.workspace.listed import MAX_BYTES, Source, ignored_files, listed, outer_rules
from deputize.worker.workspace.source import open_folder
from deputize.worker.workspace.workspace import Workspace
from tests.hostile.planted import plant
from tests.worker.workspace.trees import copy_of, directory, git, tree, visible

NAMES = st.sampled_from(["a", "b", "ab", "a.b", "a b", "[a]", "é", "#a", "!a", "a\\", ":a", " a", "a ", "A"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
PIECES = st.sampled_from(
    [*"ab. !#*?/\\[]-^", "**", "**/", "/**", "[ab]", "[!a]", "[^a]", "[a-b]", "\\*", "\\ ", "a/", "/a", "é"]
)
LINES = st.one_of(PATHS, st.lists(PIECES, min_size=1, max_size=5).map("".join), PATHS.map(lambda path: f"!{path}"))
RULES = st.lists(LINES, max_size=5).map("\n".join)


def make(folder: Path, files: list[str], rules: dict[str, str]) -> None:
    for name in files:
        with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
    for name, text in rules.items():
        with suppress(FileExistsError, NotADirectoryError):
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / ".gitignore").write_text(text + "\n")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    files=st.lists(PATHS, min_size=1, max_size=14),
    rules=st.dictionaries(st.one_of(st.just("."), PATHS), RULES, max_size=4),
    tracked=st.sets(PATHS, max_size=3),
)
def test_what_is_listed_is_what_git_lists(files: list[str], rules: dict[str, str], tracked: set[str]) -> None:
    with TemporaryDirectory() as name:
        top = Path(name).resolve()
        make(top, files, rules)
        git(top, "init", "-q")
        untracked = visible(top)
        there = [path for path in files if (top / path).is_file()]
        with open_folder(top) as fd:
            assert ignored_files(fd, there, outer_rules(top)) == {*there} - untracked
            if added := [path for path in there if path in tracked]:
                git(top, "--literal-pathspecs", "add", "-f", "--", *added)
            found = listed(Source(fd, top, None, Event()), outer_rules(top))
        assert {path for path in found if (top / path).is_file()} == visible(top)


async def test_a_copy_of_a_strangers_repository_starts_nothing_that_it_names(tmp_path: Path, root: Path) -> None:
    planted = plant(tmp_path / "project", tmp_path / "outside")
    (planted.folder / ".gitignore").write_text("*.txt\n")
    workspace = await Workspace.create(directory(planted.folder, ignored=False, exclude=["*.sh"]), "dlg_1", root)
    (workspace.path / "new.txt").write_text("new")
    facts = await workspace.facts()
    assert (facts.ignored, facts.changes) == (["new.txt"], [])
    assert "file.txt" in tree(workspace.path)
    assert planted.ran() == []
    workspace.close()


async def test_without_git_all_is_copied_and_the_report_says_so(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    make(source, ["a.log", "b"], {".": "*.log"})
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rm").symlink_to("/bin/rm")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    workspace = await copy_of(source, root)
    assert tree(workspace.path).keys() == {"a.log", "b", ".gitignore"}
    (workspace.path / "c.log").touch()
    facts = await workspace.facts()
    assert [change.path for change in facts.changes] == ["c.log"]
    assert ["no git" in sentence for sentence in facts.not_copied] == [True]
    with pytest.raises(Invalid, match="git, which reads these patterns, is missing"):
        await Workspace.create(directory(source, exclude=["b"]), "dlg_2", root)
    (source / ".gitignore").unlink()
    plain = await Workspace.create(directory(source, ignored=False), "dlg_3", root)
    (plain.path / ".gitignore").write_text("*.log\n")
    (plain.path / "d.log").touch()
    facts = await plain.facts()
    assert [*facts.not_copied, *(change.path for change in facts.changes)] == [".gitignore", "d.log"]
    assert ["git could not be asked" in sentence for sentence in facts.left_out] == [True]
    for each in (workspace, plain):
        each.close()


async def test_rules_that_git_cannot_follow_in_time_or_size_are_refused(tmp_path: Path, root: Path) -> None:
    source = tmp_path / "source"
    make(source, ["a"], {".": "#" * MAX_BYTES})
    with pytest.raises(Invalid, match=r"larger than .*simplify its"):
        await copy_of(source, root)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
async def test_only_a_regular_file_has_rules(tmp_path: Path, root: Path, kind: str) -> None:
    source, rules = tmp_path / "source", tmp_path / "source/.gitignore"
    make(source, ["a", "b"], {})
    (tmp_path / "rules").write_text("*\n")
    if kind == "link":
        rules.symlink_to(tmp_path / "rules")
    elif kind == "pipe":
        os.mkfifo(rules)
    else:
        rules.mkdir()
    workspace = await copy_of(source, root)
    assert {"a", "b"} <= tree(workspace.path).keys()
    workspace.close()
