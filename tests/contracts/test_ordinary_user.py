"""The user as whom root's tests attack reaches the checkout where only root may go, and nothing else there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes.ordinary_user import ORDINARY_UID, need_ordinary_user, open_the_way
from tests.worker.forked import in_child


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except PermissionError:
        return "denied"


def _as_ordinary_user(opened: Callable[[], None], *read: Path) -> list[str]:
    def work() -> list[str]:
        opened()
        os.setgroups([])
        os.setresgid(ORDINARY_UID, ORDINARY_UID, ORDINARY_UID)
        os.setresuid(ORDINARY_UID, ORDINARY_UID, ORDINARY_UID)
        return [_read(path) for path in read]

    return in_child(work)


@pytest.mark.parametrize("umask", [0o022, 0o077], ids=["open files", "closed files"])
def test_only_what_is_named_is_reached_in_a_closed_folder(tmp_path: Path, umask: int) -> None:
    need_ordinary_user()
    closed = tmp_path / "root's own ü"
    closed.mkdir(mode=0o700)
    (closed / "venv").mkdir()
    (closed / "venv/program").write_text("mounted")
    before = os.umask(umask)
    try:
        (closed / "source/sub").mkdir(parents=True)
        (closed / "source/sub/code.py").write_text("copied")
        (closed / "secret").write_text("secret")
    finally:
        os.umask(before)
    wanted = closed / "venv/program", closed / "source/sub/code.py"
    assert _as_ordinary_user(lambda: None, *wanted) == ["denied", "denied"]

    def opened() -> None:
        open_the_way([closed / "venv"], [closed / "source"])

    assert _as_ordinary_user(opened, *wanted) == ["mounted", "copied"]
    assert not in_child(lambda: (opened(), (closed / "secret").exists())[1])
    assert (closed / "secret").read_text() == "secret"
    assert closed.stat().st_mode & 0o777 == 0o700


def test_an_open_folder_is_left_as_it_is() -> None:
    need_ordinary_user()
    views = in_child(lambda: [_view(), open_the_way([Path("/usr")], []), _view()])
    assert views == [_view(), None, _view()]


def _view() -> str:
    return str(Path("/proc/self/ns/mnt").readlink())
