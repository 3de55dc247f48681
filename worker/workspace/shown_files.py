"""Directories of the machine that the operator shows to commands: tools read there what commands can read."""

from __future__ import annotations

import os
import stat as modes
from pathlib import Path

from ...shared.errors import ErrorType, ToolError
from .files import Files

_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


class ShownFiles(Files):
    """The files below one directory, at its own path. Paths are absolute, or relative to the directory.

    ``reader`` is the user (uid, gid) of commands where the worker is root: what commands cannot open is refused.
    """

    def __init__(self, root: Path, reader: tuple[int, int] | None = None) -> None:
        super().__init__(root, mount=str(root))
        self._reader = reader

    def open_fd(self, path: str, flags: int = _READING) -> int:
        fd = super().open_fd(path, flags)
        place = Path(f"/proc/self/fd/{fd}").readlink()
        if self._reader and not _may_open(self.root.resolve(), place, self._reader):
            os.close(fd)
            raise ToolError(ErrorType.PERMISSION_DENIED, f"Permission denied: {path}")
        return fd

    def write(self, path: str, data: bytes, *, keep_mode: bool = True) -> bool:
        raise _read_only(path)

    def mkdir(self, path: str) -> None:
        raise _read_only(path)

    def remove(self, path: str) -> None:
        raise _read_only(path)


def named(files: Files, path: str) -> str:
    """Returns a path of these files as answers name it: absolute where it is not in the workspace."""
    return files.full(path) if isinstance(files, ShownFiles) else path


def _may_open(root: Path, place: Path, reader: tuple[int, int]) -> bool:
    """Returns whether the reader may read the file, or list the directory, and enter all those that lead there."""
    try:
        found = place.lstat()
        folders = [folder.lstat() for folder in place.parents if folder.is_relative_to(root)]
    except OSError:  # it was moved or removed meanwhile
        return False
    readable = _is_open_to(found, 0o5 if modes.S_ISDIR(found.st_mode) else 0o4, reader)
    return place.is_relative_to(root) and readable and all(_is_open_to(folder, 0o1, reader) for folder in folders)


def _is_open_to(found: os.stat_result, wanted: int, reader: tuple[int, int]) -> bool:
    shift = 6 if found.st_uid == reader[0] else 3 if found.st_gid == reader[1] else 0
    return found.st_mode >> shift & wanted == wanted


def _read_only(path: str) -> ToolError:
    return ToolError(ErrorType.PATH_NOT_ALLOWED, f"Path not allowed: {path!r}: it can only be read.")
