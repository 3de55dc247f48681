"""The paths of the corpus, and the directory tree that they lead into."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

CORPUS = Path(__file__).parents[2] / "corpus"
SECRET = b"SECRET"


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The corpus's tree: a workspace ``ws`` full of links, beside what must not be reached."""
    sockets = []
    for row in json.loads((CORPUS / "paths_fixture.json").read_text("utf-8")):
        path, target = tmp_path / row["path"], row.get("target", "").replace("<base>", str(tmp_path))
        path.parent.mkdir(parents=True, exist_ok=True)
        match row["kind"]:
            case "dir":
                path.mkdir(parents=True, exist_ok=True)
            case "file":
                path.write_bytes(SECRET if "secret" in row["path"] else b"fine")
            case "symlink":
                path.symlink_to(target)
            case "hardlink":
                path.hardlink_to(tmp_path / target)
            case "fifo":
                os.mkfifo(path)
            case _:
                sockets.append(socket.socket(socket.AF_UNIX))
                monkeypatch.chdir(path.parent)  # a socket's whole name must be short
                sockets[-1].bind(path.name)
    yield tmp_path
    for each in sockets:
        each.close()
