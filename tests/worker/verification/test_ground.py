"""Grounds hold the base and the run's changes, without those at protected paths, and the files of the check."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from deputize.shared.request import DirectoryWorkspace
from deputize.worker.verification.grounds.ground import Candidate, GroundError, Grounds, fingerprint, remove_grounds
from deputize.worker.verification.protected.paths import Globs, Protection
from deputize.worker.workspace.workspace import Workspace

BASE = {
    "src/a.py": "a = 1\n",
    "src/b.py": "b = 1\n",
    "tests/test_a.py": "assert True\n",
    "conftest.py": "x = 1\n",
    "pyproject.toml": "[project]\nname = 'a'\n\n[tool.pytest.ini_options]\naddopts = '-q'\n",
    "package.json": '{"scripts": {"test": "jest"}, "version": "1"}',
    "setup.cfg": "[metadata]\nname = a\n",
    ".gitignore": "*.pyc\nlocal/\n",
}


def lay(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def tree(folder: Path) -> dict[str, str]:
    """Every file and link by its path; a link with what it leads to."""
    found = [Path(at, name) for at, folders, files in os.walk(folder) for name in (*folders, *files)]
    return {
        str(path.relative_to(folder)): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in found
        if path.is_symlink() or path.is_file()
    }


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[Workspace]:
    lay(tmp_path / "project", BASE)
    (tmp_path / "project/link").symlink_to("src")
    spec = DirectoryWorkspace(kind="directory", path=str(tmp_path / "project"))
    made = await Workspace.create(spec, "dlg_1", tmp_path / "runs")
    yield made
    made.close()


def ground(workspace: Workspace, protect: list[str] | None = None, **files: str) -> tuple[dict[str, str], list[str]]:
    """The files of the candidate's ground, and what was restored."""
    changed = workspace.changed()
    candidate = Candidate(changed, Protection(protect))
    with closing(Grounds(workspace.path.parent.parent, "dlg_1")) as grounds:
        made = grounds.make("candidate", changed.base, candidate, files, Event())
        return tree(made), sorted(set(candidate.restored))


LINKED = {**BASE, "link": "-> src"}


def test_without_changes_it_is_the_base(workspace: Workspace) -> None:
    assert ground(workspace) == (LINKED, [])


def test_files_of_a_check_lie_in_folders_that_are_made_for_them_also_in_place_of_files(workspace: Workspace) -> None:
    given = {"one/two/three/a.py": "a\n", "setup.cfg/two/b.py": "b\n", "src/a.py/two/c.py": "c\n"}
    there = {path: text for path, text in LINKED.items() if path not in ("setup.cfg", "src/a.py")}
    assert ground(workspace, None, **given)[0] == there | given


def test_every_kind_of_change_is_in_it(workspace: Workspace) -> None:
    files = workspace.path
    lay(files, {"src/a.py": "a = 2\n", "new/deep/c.py": "c\n", "a b/ü.txt": "x\n"})
    (files / "src/b.py").rename(files / "src/moved.py")
    (files / "link").unlink()
    (files / "link").symlink_to("new")
    (files / "other").symlink_to("/etc/passwd")
    shutil.rmtree(files / "tests")
    lay(files, {"tests": "a file now\n"})
    wanted = {path: text for path, text in LINKED.items() if not path.startswith("tests/") and path != "src/b.py"}
    wanted |= {"src/a.py": "a = 2\n", "new/deep/c.py": "c\n", "a b/ü.txt": "x\n", "src/moved.py": "b = 1\n"}
    assert ground(workspace, []) == (
        wanted | {"link": "-> new", "other": "-> /etc/passwd", "tests": "a file now\n"},
        [],
    )


def test_an_executable_stays_one(workspace: Workspace) -> None:
    lay(workspace.path, {"run.sh": "#!/bin/sh\n"})
    (workspace.path / "run.sh").chmod(0o755)
    (workspace.path / "src/a.py").chmod(0o755)
    changed = workspace.changed()
    with closing(Grounds(workspace.path.parent.parent, "dlg_1")) as grounds:
        made = grounds.make("candidate", changed.base, Candidate(changed, Protection(None)), {}, Event())
        assert [os.access(made / name, os.X_OK) for name in ("run.sh", "src/a.py", "src/b.py")] == [True, True, False]


@pytest.mark.parametrize(
    ("path", "mode", "text", "is_seen"),
    [
        ("tests/test_a.py", 0o755, None, True),
        ("tests/test_a.py", 0o755, "assert 1\n", False),
        ("tests/test_a.py", 0o600, None, False),
        ("tests/test_new.py", 0o755, "assert 1\n", False),
        ("conftest.py", 0o755, "", False),
    ],
)
def test_a_protected_file_that_was_only_made_executable_is_seen(
    workspace: Workspace, path: str, mode: int, text: str | None, is_seen: bool
) -> None:
    if text is not None:
        lay(workspace.path, {path: text})
    (workspace.path / path).chmod(mode)
    candidate = Candidate(workspace.changed(), Protection(None))
    assert [each.path for each in candidate.seen] == [path] * is_seen


@pytest.mark.parametrize(
    "planted",
    [
        "tests/test_new.py",
        "tests/conftest.py",
        "src/conftest.py",
        "pytest.ini",
        "deep/er/test_x.py",
        "sitecustomize.py",
        "src/x.pth",
        ".venv/bin/python",
        "env/bin/python",
        "node_modules/jest/index.js",
        "src/__pycache__/a.cpython-311.pyc.bak",
        "uv.lock",
        "Makefile",
        ".github/workflows/ci.yml",
        "jest.config.js",
    ],
)
def test_what_is_planted_at_a_protected_path_is_not_there(workspace: Workspace, planted: str) -> None:
    lay(workspace.path, {planted: "planted\n", "src/c.py": "c\n"})
    assert ground(workspace) == (LINKED | {"src/c.py": "c\n"}, [planted])


def test_ignored_files_are_not_there_whatever_is_protected(workspace: Workspace) -> None:
    lay(workspace.path, {"local/conftest.py": "x\n", "src/a.pyc": "x\n", ".gitignore": "*.pyc\nlocal/\nconftest2.py\n"})
    lay(workspace.path, {"conftest2.py": "x\n"})
    assert ground(workspace, []) == (LINKED | {".gitignore": "*.pyc\nlocal/\nconftest2.py\n"}, [])


def test_protected_files_are_restored_by_content_through_links_deletions_and_renames(workspace: Workspace) -> None:
    files = workspace.path
    (files / "conftest.py").rename(files / "src/moved.py")
    lay(files, {"easy/test_a.py": "pass\n"})
    shutil.rmtree(files / "tests")
    (files / "tests").symlink_to("easy")
    found, restored = ground(workspace)
    assert found == LINKED | {"src/moved.py": "x = 1\n"}
    assert restored == ["conftest.py", "easy/test_a.py", "tests", "tests/test_a.py"]


def test_a_link_above_a_protected_path_does_not_hide_it(workspace: Workspace) -> None:
    files = workspace.path
    lay(files, {"src/tests/test_b.py": "pass\n", "other/x.py": "x\n"})
    shutil.rmtree(files / "src")
    (files / "src").symlink_to("other")
    found, restored = ground(workspace, ["src/a.py"])
    assert found["src/a.py"] == "a = 1\n"
    assert "src" in restored


@pytest.mark.parametrize(
    ("path", "before_and_after", "is_restored"),
    [
        ("pyproject.toml", (BASE["pyproject.toml"], BASE["pyproject.toml"].replace("'a'", "'b'")), False),
        ("pyproject.toml", (BASE["pyproject.toml"], BASE["pyproject.toml"].replace("-q", "-k none")), True),
        ("pyproject.toml", ("", "not toml"), True),
        ("package.json", (BASE["package.json"], BASE["package.json"].replace('"1"', '"2"')), False),
        ("package.json", (BASE["package.json"], BASE["package.json"].replace("jest", "true")), True),
        ("package.json", ("{}", '{"scripts": {"build": "tsc"}}'), False),
        ("package.json", ('{"scripts": {"test": "x"}}', '{"scripts": {"test": "x", "pretest": "y"}}'), True),
        ("package.json", ("{}", '{"jest": {}}'), True),
        ("package.json", ("{}", "[]"), True),
        ("setup.cfg", (BASE["setup.cfg"], BASE["setup.cfg"] + "version = 2\n"), False),
        ("setup.cfg", (BASE["setup.cfg"], "[tool:pytest]\naddopts = -k none\n"), True),
        ("setup.cfg", ("", "no section"), True),
        ("src/a.py", ("", "x"), False),
    ],
)
def test_a_file_that_is_work_and_configuration_is_restored_where_it_steers_the_tests(
    path: str, before_and_after: tuple[str, str], is_restored: bool
) -> None:
    contents = [text.encode() for text in before_and_after]
    assert Protection(None).holds(path, lambda: (contents[0], contents[1])) is is_restored
    assert Protection([]).holds(path, lambda: (contents[0], contents[1])) is False


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("tests", ["tests", "tests/a", "a/tests/b/c"], ["test", "a/tests2/b"]),
        ("tests/**", ["tests", "tests/a/b"], ["a/tests/b"]),
        ("/tests/", ["tests/a"], ["a/tests/b"]),
        ("*.lock", ["uv.lock", "a/b.lock"], ["lock"]),
        ("src/*.{js,ts}", ["src/a.js", "src/a.ts"], ["src/b/a.js", "a.js"]),
        ("**/a", ["a", "b/a", "b/a/c"], ["ab"]),
    ],
)
def test_patterns_are_those_of_gitignore(pattern: str, matching: list[str], other: list[str]) -> None:
    assert [path for path in (*matching, *other) if Globs([pattern]).match(path)] == matching


def test_the_checks_own_files_are_laid_last_over_whatever_is_there(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    lay(workspace.path, {"d/e/f": "x\n", "checks": "a file\n"})
    (workspace.path / "out").symlink_to(tmp_path / "outside")
    own = {"src/a.py": "mine\n", "d/e": "mine\n", "checks/x.py": "mine\n", "out/y": "mine\n", "link/z": "mine\n"}
    found, _ = ground(workspace, [], **own)
    assert {path: found[path] for path in own} == own
    assert [*(tmp_path / "outside").iterdir()] == []


def test_a_file_that_changes_while_it_is_copied_stops_the_checks(workspace: Workspace) -> None:
    lay(workspace.path, {"src/a.py": "a = 2\n"})
    changed = workspace.changed()
    candidate = Candidate(changed, Protection(None))
    lay(workspace.path, {"src/a.py": "a = 3\n"})
    with (
        closing(Grounds(workspace.path.parent.parent, "dlg_1")) as grounds,
        pytest.raises(GroundError, match=r"src/a\.py"),
    ):
        grounds.make("candidate", changed.base, candidate, {}, Event())
    assert fingerprint(changed) != fingerprint(workspace.changed())


def test_nothing_is_left_and_what_an_earlier_attempt_left_is_removed(workspace: Workspace, tmp_path: Path) -> None:
    root = workspace.path.parent.parent
    (root / "dlg_1.ground-0/base").mkdir(parents=True)
    (root / "dlg_2.ground-0").mkdir()
    ground(workspace)
    remove_grounds(root, "dlg_1")
    assert sorted(path.name for path in root.iterdir()) == ["dlg_1", "dlg_2.ground-0"]


RUST = "fn one() {}\n#[cfg(test)]\nmod tests {}\n"


@pytest.mark.parametrize(
    ("path", "text", "added"),
    [
        ("lib.rs", RUST.replace("one", "two"), set()),
        ("lib.rs", RUST.replace("{}\n", "{ one() }\n", 2), None),
        ("new.rs", "fn one() {}\n", set()),
        ("new.rs", "#[tokio::test]\nasync fn one() {}\n", {"one"}),
        ("a_test.go", "package a\n", None),
        ("other.txt", "#[test]\n", set()),
    ],
)
async def test_tests_that_a_run_rewrites_beside_the_code_are_known(
    tmp_path: Path, path: str, text: str, added: set[str] | None
) -> None:
    lay(tmp_path / "project", {"lib.rs": RUST})
    spec = DirectoryWorkspace(kind="directory", path=str(tmp_path / "project"))
    made = await Workspace.create(spec, "dlg_1", tmp_path / "runs")
    (made.path / path).write_text(text)
    assert Candidate(made.changed(), Protection([])).tests_beside_code() == added
    made.close()
