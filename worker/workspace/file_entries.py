"""Directory entries and file status, and the names in a workspace that are the worker's own."""

from __future__ import annotations

import errno
import os
import secrets
import stat as modes
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...shared.workspaces import PRIVATE_DIR

TEMPORARY = ".deputize-writing-"
"""The prefix of files that are being written, before they are renamed."""
_being_written: set[str] = set()
Kind = Literal["file", "directory", "symlink", "other"]


def is_private(path: str) -> bool:
    """Whether a path relative to the workspace is the worker's own directory or inside it."""
    return path == PRIVATE_DIR or path.startswith(PRIVATE_DIR + "/")


@contextmanager
def temporary_name() -> Generator[str]:
    """Yields an unused name; inside the block ``is_being_written`` is true for it, so that no listing includes it."""
    name = TEMPORARY + secrets.token_hex(8)
    _being_written.add(name)
    try:
        yield name
    finally:
        _being_written.discard(name)


def is_being_written(name: str) -> bool:
    """Whether this process is writing a file of that name now. Other files may have such a name, too."""
    return name in _being_written


@dataclass(frozen=True, slots=True)
class Stat:
    """The status of a path: ``size`` in bytes, ``mtime_ns`` in nanoseconds, ``mode`` as permission bits."""

    kind: Kind
    size: int
    mtime_ns: int
    mode: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An entry of a directory; ``path`` is relative to the workspace. Links are not followed."""

    path: str
    stat: Stat

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def read_all(fd: int, max_bytes: int) -> bytes:
    """Reads to the end of the file, at most one byte more than allowed, so that a file that grows is detected."""
    parts: list[bytes] = []
    left = max_bytes + 1
    while left and (part := os.read(fd, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def entries_of(prefix: str, found: Iterator[os.DirEntry[str]]) -> Iterator[FileEntry]:
    """Yields the entries of a listing whose paths start with ``prefix``; files that are gone are skipped."""
    for entry in found:
        with suppress(FileNotFoundError):
            yield FileEntry(prefix + entry.name, stat_of(entry.stat(follow_symlinks=False)))


def stat_of(found: os.stat_result) -> Stat:
    """Converts the system's file status."""
    kinds: dict[int, Kind] = {modes.S_IFREG: "file", modes.S_IFDIR: "directory", modes.S_IFLNK: "symlink"}
    kind = kinds.get(modes.S_IFMT(found.st_mode), "other")
    return Stat(kind, found.st_size, found.st_mtime_ns, modes.S_IMODE(found.st_mode))


def lstat(folder: int, name: str) -> os.stat_result | None:
    """Returns the status of a file without following links; None if it does not exist."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def path_of_fd(fd: int) -> str | None:
    """Returns the path of an open file, or None if another file has it now. Closes the descriptor."""
    try:
        place, opened = Path(f"/proc/self/fd/{fd}").readlink(), os.fstat(fd)
        there = place.lstat()
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            return None
        raise
    finally:
        os.close(fd)
    return str(place) if (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino) else None
