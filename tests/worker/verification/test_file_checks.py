"""Checks of files, before the run's changes and with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from deputize.shared.checks import VerifyItem
from deputize.shared.request import DirectoryWorkspace
from deputize.worker.verification import file_checks
from deputize.worker.verification.file_checks import checked_files
from deputize.worker.workspace.workspace import Workspace

ITEM: TypeAdapter[Any] = TypeAdapter(VerifyItem)
DIGEST = sha256(b"new\n").hexdigest()


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[Workspace]:
    """Of three files one is changed, one deleted and one left; two are new, of which git ignores one."""
    (tmp_path / "project").mkdir()
    for name, text in {"a.txt": "old\n", "gone.txt": "x\n", "same.txt": "same\n", ".gitignore": "*.log\n"}.items():
        (tmp_path / "project" / name).write_text(text)
    spec = DirectoryWorkspace(kind="directory", path=str(tmp_path / "project"))
    made = await Workspace.create(spec, "dlg_1", tmp_path / "runs")
    (made.path / "a.txt").write_text("new\n")
    (made.path / "gone.txt").unlink()
    (made.path / "made.txt").write_text("made\n")
    (made.path / "ignored.log").write_text("ignored\n")
    (made.path / "link.txt").symlink_to("/etc/passwd")
    (made.path / "folder").mkdir()
    (made.path / "folder/back.txt").symlink_to("../a.txt")
    (made.path / "latest").symlink_to("folder")
    (made.path / "to-ignored.txt").symlink_to("ignored.log")
    (made.path / "round").symlink_to("round")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("item", "states"),
    [
        ({"kind": "file", "path": "made.txt"}, ("red", "green")),
        ({"kind": "file", "path": "gone.txt"}, ("green", "red")),
        ({"kind": "file", "path": "gone.txt", "exists": False}, ("red", "green")),
        ({"kind": "file", "path": "same.txt", "exists": True}, ("green", "green")),
        ({"kind": "file", "path": "ignored.log"}, ("red", "red")),
        ({"kind": "file", "path": "link.txt"}, ("red", "red")),
        ({"kind": "file", "path": "latest/back.txt", "matches": "^new"}, ("red", "green")),
        ({"kind": "file", "path": "to-ignored.txt"}, ("red", "red")),
        ({"kind": "file", "path": "round"}, ("red", "red")),
        ({"kind": "file", "path": "a.txt", "matches": "^n.w"}, ("red", "green")),
        ({"kind": "file", "path": "a.txt", "matches": "(x+x+)+y"}, ("red", "red")),
        ({"kind": "file", "path": "a.txt", "sha256": DIGEST}, ("red", "green")),
        ({"kind": "file", "path": "a.txt", "sha256": DIGEST, "matches": "old"}, ("red", "red")),
        ({"kind": "unchanged", "paths": ["same.txt", "*.log"]}, ("green", "green")),
        ({"kind": "unchanged", "paths": ["gone.txt"]}, ("green", "red")),
        ({"kind": "changed", "paths": ["a.txt", "made.*"]}, ("red", "green")),
        ({"kind": "changed", "paths": ["a.txt", "same.txt"]}, ("red", "red")),
    ],
)
def test_a_check_has_a_state_before_and_with_the_changes(
    workspace: Workspace, item: dict[str, Any], states: tuple[str, str]
) -> None:
    before, now = checked_files(workspace.changed(), ITEM.validate_python(item))
    assert (before.state, now.state) == states


def test_a_pattern_that_takes_too_long_decides_nothing(workspace: Workspace) -> None:
    (workspace.path / "a.txt").write_text("x" * 5000 + "\n")
    item = ITEM.validate_python({"kind": "file", "path": "a.txt", "matches": "(x+x+)+y"})
    _, now = checked_files(workspace.changed(), item)
    assert (now.state, "takes more than" in now.why) == ("unknown", True)


def test_a_file_that_is_too_large_to_be_read_decides_nothing(workspace: Workspace) -> None:
    with (workspace.path / "a.txt").open("wb") as file:
        file.truncate(file_checks.MAX_FILE_BYTES + 1)
    item = ITEM.validate_python({"kind": "file", "path": "a.txt", "matches": "x"})
    _, now = checked_files(workspace.changed(), item)
    assert (now.state, "more than" in now.why) == ("unknown", True)
