"""The free room of a disk that runs share, and the removal of the files by which one of them has filled it.

Paths are those of a run whose other processes may be alive: nothing here follows a link, or leaves the directory.
"""

from __future__ import annotations

import heapq
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from ...shared.libc import beneath, closing_fd
from ...shared.text import clip, count, visible

_MOST_AT_ONCE = 200_000
_MAX_NAMED = 3
_MAX_NAME = 80
_FEW = 64
"""A file system that has taken all but one part in so many of its files takes few more."""
_SECONDS = "60"


@dataclass(frozen=True, slots=True)
class Room:
    """What a file system still takes: bytes, and files as far as it bounds their number."""

    free: int
    files: int
    all_files: int

    @classmethod
    def of(cls, folder: Path) -> Room:
        """Returns the room of the directory's disk; a missing directory has none."""
        try:
            found = os.statvfs(folder)
        except OSError:
            return cls(0, 0, 0)
        return cls(found.f_bavail * found.f_frsize, found.f_favail, found.f_files)

    @property
    def has_few_files(self) -> bool:
        return self.files * _FEW < self.all_files


class _Entry(NamedTuple):
    is_folder: bool
    size: int
    path: bytes


@dataclass(slots=True)
class Removed:
    """What was removed."""

    files: int = 0
    bytes: int = 0
    names: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        rest = self.files - len(self.names)
        return ", ".join(self.names) + (f" and {count(rest, 'more file')}" if rest else "")

    def add(self, entry: _Entry) -> None:
        self.files += 1
        self.bytes += entry.size
        if len(self.names) < _MAX_NAMED:
            self.names.append(clip(visible(os.fsdecode(entry.path)), _MAX_NAME))


def new_files(folder: Path, since: float) -> int:
    """Returns how many files and directories were made or changed since then. Blocks."""
    return sum(1 for _ in _changed(folder, since))


def remove_new(folder: Path, since: float, size: int, files: int) -> Removed:
    """Removes what was made or changed since then until so many bytes and so many files are gone. Blocks.

    It begins with the largest file. Where their number is too high, it begins with the smallest one.
    """
    removed = Removed()
    for _ in range(2):  # a directory that its own user has closed is opened after the first time
        found = _changed(folder, since)
        if files:
            entries = heapq.nsmallest(_MOST_AT_ONCE, found, key=lambda each: each[:2])
        else:
            entries = heapq.nlargest(_MOST_AT_ONCE, (each for each in found if not each.is_folder))
        with closing_fd(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
            for entry in entries:
                if removed.bytes >= size and removed.files >= files:
                    return removed
                if _remove(root, entry):
                    removed.add(entry)
        subprocess.run(["chmod", "-R", "u+rwX", "--", folder], check=False, stderr=subprocess.DEVNULL)
    return removed


def _remove(root: int, entry: _Entry) -> bool:
    """Returns whether it is gone: no directory is that holds anything."""
    parent, name = os.path.split(os.fsdecode(entry.path))
    with suppress(OSError):
        with closing_fd(beneath(root, parent or ".", os.O_PATH | os.O_DIRECTORY, links=False)) as folder:
            os.rmdir(name, dir_fd=folder) if entry.is_folder else os.unlink(name, dir_fd=folder)
        return True
    return False


def _changed(folder: Path, since: float) -> Iterator[_Entry]:
    """Yields what was made or changed since then, what a directory holds before it."""
    find = ["timeout", _SECONDS, "find", f"{folder}/.", "-mindepth", "1", "-xdev", "-depth"]
    find += ["-printf", r"%C@ %b %y %P\0"]
    # With the privileges of a user namespace, so that directories without read permission count, too.
    as_root = ["unshare", "--map-root-user"] if os.geteuid() != 0 else []
    with subprocess.Popen([*as_root, *find], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        for line in _records(process.stdout):
            changed, blocks, kind, path = line.split(b" ", 3)
            if float(changed) >= since:
                yield _Entry(kind == b"d", 0 if kind == b"d" else int(blocks) * 512, path)


def _records(file: IO[bytes]) -> Iterator[bytes]:
    """Yields what ends with a zero byte."""
    rest = b""
    while part := file.read(1 << 16):
        *whole, rest = (rest + part).split(b"\0")
        yield from whole
