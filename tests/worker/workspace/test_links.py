"""No link leads a copy or a comparison into another folder, whenever it appears."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from deputize.shared.libc import beneath
from deputize.worker.workspace.manifest import read_content, scan
from deputize.worker.workspace.tree_copy import TreeCopy


def test_a_directory_that_became_a_link_shows_no_other_folder(tmp_path: Path) -> None:
    (tmp_path / "files/inner").mkdir(parents=True)
    (tmp_path / "files/real").mkdir()
    (tmp_path / "files/real/secret").write_text("x")
    (tmp_path / "files/link").symlink_to("real")
    (tmp_path / "copy").mkdir()
    source, target = (os.open(tmp_path / name, os.O_RDONLY) for name in ("files", "copy"))
    try:
        with pytest.raises(OSError, match="symbolic links") as caught:
            beneath(source, "link/secret", os.O_RDONLY, links=False)
        assert caught.value.errno == errno.ELOOP
        seen = scan(source)
        assert [*seen] == ["link", "real/secret"]
        secret = seen["real/secret"]
        assert [read_content(source, path, secret, 9) for path in ("real/secret", "link/secret")] == [b"x", None]
        TreeCopy(source, target).run()
        assert (tmp_path / "copy/link").is_symlink()
    finally:
        os.close(source)
        os.close(target)


def test_a_directory_that_becomes_a_link_during_the_copy_is_not_gone_through(tmp_path: Path) -> None:
    for folder in ("files/first/deep", "files/real/deep", "copy"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "files/real/deep/secret").write_text("x")

    def replaced(path: str, is_directory: bool) -> bool:
        if path == "first/deep":
            (tmp_path / "files/first").rename(tmp_path / "files/second")
            (tmp_path / "files/first").symlink_to("real")
        return True

    source, target = (os.open(tmp_path / name, os.O_RDONLY) for name in ("files", "copy"))
    try:
        TreeCopy(source, target, include=replaced).run()
    finally:
        os.close(source)
        os.close(target)
    assert [*(tmp_path / "copy/first/deep").iterdir()] == []


def test_magic_links_are_never_followed() -> None:
    """By the flag for them: that they lead out as well is no wall, because kernels may come to judge it otherwise."""
    process = os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for path in ("cwd", "root", "exe", f"fd/{process}"):
            with pytest.raises(OSError, match="symbolic links") as caught:
                beneath(process, path, os.O_PATH)
            assert caught.value.errno == errno.ELOOP
    finally:
        os.close(process)
