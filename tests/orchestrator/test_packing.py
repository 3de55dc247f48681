"""What is packed of a directory: as much as a copy would have, and the same bytes each time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deputize.orchestrator.packing import Packed, pack
from deputize.shared.errors import Invalid
from deputize.worker.workspace.workspace import Workspace
from tests.worker.workspace.archives import made_of
from tests.worker.workspace.trees import directory, git, tree


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with tracked and ignored files, a program, links, a folder that is empty, and odd names."""
    source = tmp_path / "source"
    (source / "src/deep").mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "src/é b.py").write_text("one\n")
    (source / "src/run.sh").write_text("#!/bin/sh\n")
    (source / "src/run.sh").chmod(0o755)
    (source / "src/link").symlink_to("../data.csv")
    (source / "data.csv").write_bytes(os.urandom(100_000))
    (source / ".gitignore").write_text("*.log\nbuilt/\n")
    (source / "kept.log").write_text("tracked")
    git(source, "init", "-q")
    git(source, "add", "-f", ".")
    (source / "made.log").write_text("ignored")
    (source / "built").mkdir()
    (source / "built/x").write_text("ignored")
    (source / ".deputize").mkdir()
    (source / ".deputize/ours").write_text("not sent")
    return source


def data(packed: Packed) -> bytes:
    with packed.file as file:
        file.seek(0)
        return file.read()


@pytest.mark.parametrize(
    ("ignored", "exclude"), [(False, []), (True, []), (False, ["*.csv"]), (True, ["src/", "!src/run.sh"])]
)
async def test_a_workspace_of_what_is_packed_is_that_of_a_copy(
    source: Path, tmp_path: Path, ignored: bool, exclude: list[str]
) -> None:
    root = tmp_path / "workspaces"
    sent = await made_of(data(pack(source, ignored=ignored, exclude=exclude)), root, "dlg_sent")
    copied = await Workspace.create(directory(source, ignored=ignored, exclude=exclude), "dlg_copied", root)
    assert tree(sent.path) == tree(copied.path)
    assert {path.name for path in sent.path.iterdir()} == {path.name for path in copied.path.iterdir()}
    assert (sent.path / ".git/HEAD").read_text() == (copied.path / ".git/HEAD").read_text()
    assert git(sent.path, "status", "--porcelain") == git(copied.path, "status", "--porcelain")
    for workspace in (sent, copied):
        await workspace.remove()


def test_the_same_files_make_the_same_archive(source: Path) -> None:
    first = pack(source)
    os.utime(source / "data.csv", (1, 1))
    again = pack(source)
    assert (first.name, data(first)) == (again.name, data(again))
    (source / "data.csv").write_text("changed")
    third = pack(source)
    third.file.close()
    assert third.name != first.name


async def test_an_archive_is_sent_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"anything")
    packed = pack(tmp_path / "x.zip")
    with packed.file:
        assert [[chunk async for chunk in packed.chunks()] for _ in range(2)] == [[b"anything"]] * 2


def test_what_a_worker_would_refuse_is_left_out_with_the_reason(source: Path) -> None:
    (source / "out").symlink_to("/etc/passwd")
    (source / "src/up").symlink_to("../../x")
    os.mkfifo(source / "pipe")
    (source / os.fsdecode(b"caf\xe9")).write_text("x")
    packed = pack(source)
    packed.file.close()
    assert packed.left_out == {
        "out": "it is a link that leads out",
        "src/up": "it is a link that leads out",
        "pipe": "it is a socket, a FIFO or a device",
        "caf\udce9": "its name is not UTF-8",
    }


def test_of_a_worktree_the_link_to_its_repository_is_left_out(source: Path, tmp_path: Path) -> None:
    git(source, "commit", "-qm", "x")
    git(source, "worktree", "add", "-q", str(tmp_path / "tree"))
    packed = pack(tmp_path / "tree")
    packed.file.close()
    assert packed.left_out == {".git": "its repository is elsewhere"}


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="none cannot be packed"):
        pack(tmp_path / "none")
