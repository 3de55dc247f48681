"""What git keeps for itself in a workspace: a look at it changes nothing, a commit does."""

from __future__ import annotations

import subprocess
from pathlib import Path

from deputize.shared.request import DirectoryWorkspace
from deputize.worker.workspace.workspace import Workspace


def git(folder: Path, *arguments: str) -> None:
    who = "-c", "user.name=n", "-c", "user.email=e", "-c", "safe.directory=*"
    subprocess.run(["git", *who, "-C", str(folder), *arguments], check=True, capture_output=True)


async def test_git_status_changes_nothing_and_a_commit_is_told_of(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("one\n")
    git(source, "init")
    git(source, "add", ".")
    git(source, "commit", "-m", "first")
    spec = DirectoryWorkspace(kind="directory", path=str(source))
    workspace = await Workspace.create(spec, "dlg_1", tmp_path / "state")
    try:
        index = (workspace.path / ".git/index").read_bytes()
        git(workspace.path, "status")
        assert (workspace.path / ".git/index").read_bytes() != index
        assert (await workspace.facts()).changes == []
        git(workspace.path, "commit", "--allow-empty", "-m", "second")
        assert [change.path for change in (await workspace.facts()).changes] == [".git"]
    finally:
        await workspace.remove()
