"""Workspaces: empty ones, a directory to copy from with its copy, and the tree of the path corpus."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from deputize.shared.request import EmptyWorkspace
from deputize.worker.workspace.files import Files
from deputize.worker.workspace.workspace import Workspace
from tests.worker.workspace.path_corpus import base
from tests.worker.workspace.trees import directory

__all__ = ["base"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory to copy from, with one of everything that lies about in projects."""
    source = tmp_path / "source"
    (source / "src/deep").mkdir(parents=True)
    (source / "src/main.py").write_text("one\ntwo\nthree\n")
    (source / "src/deep/run.sh").write_text("#!/bin/sh\n")
    (source / "src/deep/run.sh").chmod(0o755)
    (source / "logo.png").write_bytes(bytes(range(256)))
    (source / "link").symlink_to("src/main.py")
    (source / "out").symlink_to("/etc/passwd")
    (source / "built.o").write_text("built")
    (source / ".gitignore").write_text("*.o\n")
    (source / "src/.gitignore").write_text("/deep/tmp\n!kept.o\n")
    (source / "src/deep/tmp").write_text("tmp")
    (source / "src/kept.o").write_text("kept")
    (source / ".git").mkdir()
    (source / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (source / ".deputize").mkdir()
    (source / ".deputize/secret").write_text("not yours")
    os.mkfifo(source / "fifo")
    return source


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state/workspaces"


@pytest.fixture
async def empty(root: Path) -> AsyncIterator[Workspace]:
    workspace = await Workspace.create(EmptyWorkspace(), "dlg_empty", root)
    yield workspace
    workspace.close()


@pytest.fixture
async def copied(source: Path, root: Path) -> AsyncIterator[Workspace]:
    workspace = await Workspace.create(directory(source), "dlg_copied", root)
    yield workspace
    workspace.close()


@pytest.fixture
def files(base: Path) -> Iterator[Files]:
    with Files(base / "ws") as files:
        yield files


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Files]:
    """An empty workspace."""
    (tmp_path / "ws").mkdir()
    with Files(tmp_path / "ws") as files:
        yield files
