"""What is listed of a directory where git, or the user's own configuration, cannot be asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deputize.shared.listed import Source, is_copied, listed, outer_rules, tracked_paths
from tests.worker.workspace.trees import git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.log").write_text("tracked")
    git(folder, "init", "-q")
    git(folder, "add", "-f", ".")
    (folder / ".git/info/exclude").unlink()
    return folder


def test_without_git_nothing_counts_as_tracked_and_the_users_file_is_the_usual_one(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tracked_paths(repository) == {"a.log"}
    (tmp_path / "config/git").mkdir(parents=True)
    (tmp_path / "config/git/ignore").write_text("*.log\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tracked_paths(repository) == frozenset()
    assert outer_rules(repository) == [((), "*.log\n")]


def test_a_home_that_is_not_known_has_no_rules(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "~nobody-of-this-name/x")
    assert outer_rules(repository) == []


def test_a_caller_is_asked_at_each_directory(repository: Path) -> None:
    (repository / "d/e").mkdir(parents=True)
    asked: list[int] = []
    fd = os.open(repository, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = listed(Source(fd, repository, go_on=lambda: asked.append(1)), ())
    finally:
        os.close(fd)
    assert (found, len(asked)) == ({"a.log", "d", "d/e"}, 3)


@pytest.mark.parametrize(
    ("path", "is_directory", "wanted", "expected"),
    [
        ("a", False, None, True),
        ("a", False, {"a"}, True),
        ("a", False, set[str](), False),
        ("d/.git", True, set[str](), True),
        ("d/.git/HEAD", False, set[str](), True),
        ("d/.deputize", True, None, False),
    ],
)
def test_a_copy_has_the_wanted_paths(path: str, is_directory: bool, wanted: set[str] | None, expected: bool) -> None:
    assert is_copied(wanted, path, is_directory) is expected
