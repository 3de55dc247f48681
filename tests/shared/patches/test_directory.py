"""Files of a directory that is open, read and written without following a link."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.shared.patches.directory import Directory, FileState


@pytest.mark.parametrize("executable", [True, False])
def test_a_file_is_at_its_path_when_it_is_whole(tmp_path: Path, executable: bool) -> None:
    (tmp_path / "old").write_text("old")
    with Directory(tmp_path) as target:
        for path in ("old", "folder/new"):
            with target.writing(path, executable=executable) as file:
                file.write(b"new")
                assert not (tmp_path / "folder/new").exists()
            assert (tmp_path / path).read_text() == "new"
            assert bool((tmp_path / path).stat().st_mode & 0o100) == executable
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "old"]


def test_what_is_gone_or_a_folder_by_now_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with Directory(tmp_path) as target:
        target.replace({"folder": None, "gone": None, "new": FileState("100644", b"x")})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "new"]


def test_a_name_that_the_system_cannot_open_is_an_error(tmp_path: Path) -> None:
    with Directory(tmp_path) as target, pytest.raises(OSError, match="File name too long"):
        target.kind("x" * 1000)
