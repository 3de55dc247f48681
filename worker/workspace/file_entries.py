"""What stands behind a descriptor or in a directory, and the names under which files are written before their own."""

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

TEMPORARY = ".deputize-writing-"
_being_written: set[str] = set()
Kind = Literal["file", "directory", "symlink", "other"]


@contextmanager
def temporary_name() -> Generator[str]:
    """A name that nobody has; it counts as ours while the block lasts, and so is shown to nobody."""
    name = TEMPORARY + secrets.token_hex(8)
    _being_written.add(name)
    try:
        yield name
    finally:
        _being_written.discard(name)


def is_being_written(name: str) -> bool:
    """Whether this process is writing a file of that name now. Anybody can make a file that is only called so."""
    return name in _being_written


@dataclass(frozen=True, slots=True)
class Stat:
    """What a path is. ``size`` is in bytes, ``mtime_ns`` in nanoseconds, ``mode`` the permission bits."""

    kind: Kind
    size: int
    mtime_ns: int
    mode: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One name of a directory; ``path`` is relative to the workspace. Links are named, not followed."""

    path: str
    stat: Stat

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def read_all(fd: int, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    left = max_bytes + 1  # one more than allowed shows a file that grows while it is read
    while left and (part := os.read(fd, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def entries_of(prefix: str, found: Iterator[os.DirEntry[str]]) -> Iterator[Entry]:
    for entry in found:
        with suppress(FileNotFoundError):
            yield Entry(prefix + entry.name, stat_of(entry.stat(follow_symlinks=False)))


def stat_of(found: os.stat_result) -> Stat:
    kinds: dict[int, Kind] = {modes.S_IFREG: "file", modes.S_IFDIR: "directory", modes.S_IFLNK: "symlink"}
    kind = kinds.get(modes.S_IFMT(found.st_mode), "other")
    return Stat(kind, found.st_size, found.st_mtime_ns, modes.S_IMODE(found.st_mode))


def lstat(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def place_of(fd: int) -> str | None:
    """Where the opened file is, or None where another one has taken its place meanwhile. Closes the descriptor."""
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
