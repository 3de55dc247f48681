"""A copy has what git lists, for any tree and any rules; git is the judge, and starts nothing of the repository."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from threading import Event, Timer

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deputize.shared.errors import Invalid
from deputize.shared.listed import MAX_BYTES, Source, ignored_files, listed, outer_rules
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


async def test_a_copy_of_another_authors_repository_starts_nothing_that_it_names(tmp_path: Path, root: Path) -> None:
    planted = plant(tmp_path / "project", tmp_path / "outside")
    (planted.folder / ".gitignore").write_text("*.txt\n")
    workspace = await Workspace.create(directory(planted.folder, ignored=False, exclude=["*.sh"]), "dlg_1", root)
    (workspace.path / "new.txt").write_text("new")
    facts = await workspace.facts()
    assert (facts.ignored, facts.changes) == (["new.txt"], [])
    assert "file.txt" in tree(workspace.path)
    assert planted.ran() == []
    workspace.close()


async def test_without_git_all_is_copied_and_the_report_states_it(
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


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Names the gits that were asked what is ignored, by their process ids."""
    (tmp_path / "bin").mkdir()
    logging, log = tmp_path / "bin/git", tmp_path / "log"
    logging.write_text(f'#!/bin/sh\ncase "$*" in *check-ignore*) echo $$ >> {log};; esac\nexec {which("git")} "$@"\n')
    logging.chmod(0o755)
    log.touch()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return lambda: log.read_text().split()


async def test_one_git_answers_for_all_levels_and_none_is_left(
    tmp_path: Path, root: Path, started: Callable[[], list[str]]
) -> None:
    source = tmp_path / "source"
    many = [f"{'n' * 200}{number}.log" for number in range(1500)]  # more than pipes hold
    make(source, ["a.log", "b/c/d.log", "b/c/e/f.txt", "x/y", *many], {".": "*.log", "b/c": "!d.log\n*.txt"})
    with open_folder(source) as fd:
        found = listed(Source(fd, source, None, Event()), (), ["y"])
    assert found == {".gitignore", "b", "b/c", "b/c/.gitignore", "b/c/d.log", "b/c/e", "x"}
    assert [Path("/proc", each).exists() for each in started()] == [False]


async def test_without_rules_git_is_not_asked(tmp_path: Path, root: Path, started: Callable[[], list[str]]) -> None:
    make(tmp_path / "source", ["a/b", "c"], {})
    git(tmp_path / "source", "init", "-q", "--template=")
    workspace = await copy_of(tmp_path / "source", root)
    (workspace.path / "new").touch()
    assert [change.path for change in (await workspace.facts()).changes] == ["new"]
    assert started() == []
    workspace.close()


@pytest.mark.parametrize(("stopped", "seconds"), [(False, 0.3), (True, 60)])
@pytest.mark.parametrize("excluded", [False, True])
def test_a_git_that_patterns_without_end_occupy_is_ended(
    tmp_path: Path, started: Callable[[], list[str]], stopped: bool, seconds: float, excluded: bool
) -> None:
    source, endless, name = tmp_path / "source", "*a" * 60 + "*b", "a" * 200 + "c"
    make(source, [name], {} if excluded else {".": endless})
    stop = Event()
    if stopped:
        Timer(0.3, stop.set).start()
    with open_folder(source) as fd, pytest.raises(TimeoutError, match="take it too long"):
        listed(Source(fd, source, None, stop), (), [endless] if excluded else [], seconds)
    assert not any(Path("/proc", each).exists() for each in started())


async def test_a_git_that_fails_is_reported(tmp_path: Path, root: Path, started: Callable[[], list[str]]) -> None:
    make(tmp_path / "source", ["a"], {".": "b"})
    (tmp_path / "bin/git").write_text("#!/bin/sh\necho broken >&2\n")
    with pytest.raises(Invalid, match=r"\(broken\); simplify|Broken pipe"):
        await copy_of(tmp_path / "source", root)
    assert started() == []


async def test_too_large_rules_are_refused(tmp_path: Path, root: Path) -> None:
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
