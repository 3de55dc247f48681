"""Which workspaces are made on the event loop: those that nothing has to be waited for."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from deputize.worker.workspace.source import is_small
from tests.worker.waiting_mount import waiting_mount


def write(folder: Path, count: int, size: int = 1) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number}").write_bytes(b"x" * size)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a workspace that is not made yet."""
    (tmp_path / "workspaces").mkdir()
    return tmp_path / "workspaces/dlg_1"


def test_an_empty_workspace_and_a_few_files_are_small(tmp_path: Path, folder: Path) -> None:
    write(tmp_path / "source", 8)
    assert is_small(None, folder)
    assert is_small(tmp_path / "source", folder)


MORE: dict[str, Callable[[Path], object]] = {
    "nine files": lambda source: write(source, 9),
    "a large file": lambda source: write(source, 1, 300_000),
    "a folder": lambda source: write(source / "folder", 0),
    "a link": lambda source: (write(source, 0), (source / "link").symlink_to("/etc/passwd")),
    "rules of git": lambda source: (write(source, 0), (source / ".gitignore").touch()),
    "a repository": lambda source: (write(source, 1), subprocess.run(["git", "init", "-q", source.parent], check=True)),
    "nothing": lambda _: None,
}


@pytest.mark.parametrize("kind", MORE)
def test_all_else_is_not(tmp_path: Path, folder: Path, kind: str) -> None:
    MORE[kind](tmp_path / "top/source")
    assert not is_small(tmp_path / "top/source", folder)


def test_a_workspace_that_exists_is_not_small(folder: Path) -> None:
    folder.mkdir()
    assert not is_small(None, folder)


def test_the_files_of_another_workspace_are_not_small_also_behind_a_link(tmp_path: Path, folder: Path) -> None:
    write(folder.with_name("dlg_2") / "files", 1)
    (tmp_path / "link").symlink_to(folder.with_name("dlg_2") / "files")
    assert not is_small(folder.with_name("dlg_2") / "files", folder)
    assert not is_small(tmp_path / "link", folder)


@pytest.mark.requirement("P-03")
def test_what_is_not_on_a_local_disk_is_not_small(tmp_path: Path, folder: Path) -> None:
    assert not is_small(Path("/proc/sys/fs/inotify"), folder)
    with waiting_mount(folder.parent):
        assert not is_small(None, folder)
