"""The paths that a git repository tracks, from its index.

Read here and not by git: the repository may be a hostile one, whose configuration names programs that git starts.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from deputize.shared.git import git_directory, read_regular

_MAX_BYTES = 512 * 1024 * 1024
_HEAD = struct.Struct(">4sII")
_STAT_BYTES = 40
"""Bytes of an entry before its object id."""
_EXTENDED = 0x4000


def tracked_paths(repository: Path) -> frozenset[str]:
    """Returns the tracked files of a repository and the directories that they are in; none where it has no index."""
    data = read_regular(git_directory(repository) / "index", _MAX_BYTES)
    found: set[str] = set()
    try:
        for path in _entries(data or b""):
            name = os.fsdecode(path.rstrip(b"/"))
            while name and name not in found:
                found.add(name)
                name = name.rpartition("/")[0]
    except (struct.error, ValueError, IndexError):
        return frozenset()
    return frozenset(found)


def _entries(data: bytes) -> Iterator[bytes]:
    """Yields the path of each entry. Raises ValueError, IndexError or ``struct.error`` for another format."""
    signature, version, count = _HEAD.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index of git")
    is_sha256 = hashlib.sha256(data[:-32]).digest() == data[-32:]
    to_flags = _STAT_BYTES + (32 if is_sha256 else 20)
    at, path = _HEAD.size, b""
    for _ in range(count):
        flags = int.from_bytes(data[at + to_flags : at + to_flags + 2], "big")
        name = at + to_flags + (4 if flags & _EXTENDED else 2)
        kept = 0
        if version == 4:
            name, dropped = _offset(data, name)
            kept = len(path) - dropped
        end = data.index(b"\0", name)
        path = path[: max(kept, 0)] + data[name:end]
        yield path
        at = end + 1 if version == 4 else at + (end - at + 8 & ~7)


def _offset(data: bytes, at: int) -> tuple[int, int]:
    """Returns the position after a number of git's variable length, and the number."""
    byte = data[at]
    value = byte & 127
    while byte & 128:
        at += 1
        byte = data[at]
        value = (value + 1 << 7) + (byte & 127)
    return at + 1, value
