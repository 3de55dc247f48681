"""The directory that a workspace was copied from, recorded beside its files, out of the reach of commands."""

from __future__ import annotations

import os
from pathlib import Path

_NAME = "origin"


def write_origin(folder: Path, source: Path) -> None:
    """Records where the files in a workspace's new ``folder`` come from.

    A copy of another workspace, for a child delegation, comes from where that one does.
    """
    origin = read_origin(source.parent) if is_workspace(source, folder) else source
    if origin:
        (folder / _NAME).write_bytes(os.fsencode(origin))


def is_workspace(source: Path, folder: Path) -> bool:
    """Whether the source is the files of another workspace beside the one in ``folder``."""
    return source.parent.parent == folder.parent.resolve()


def read_origin(folder: Path) -> Path | None:
    """Returns the directory that a workspace's first files came from; None for an empty workspace."""
    try:
        return Path(os.fsdecode((folder / _NAME).read_bytes()))
    except FileNotFoundError:
        return None
