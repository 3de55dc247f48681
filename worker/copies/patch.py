"""The difference between two trees as git writes it, so that ``git apply`` on the one gives the other."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import zlib
from dataclasses import dataclass

from worker.copies.manifest import LINK, Difference
from worker.text.diff import unified

_PLAIN_NAME = re.compile(rb"[!#-\[\]-~]+")
_NO_BLOB = "0" * 40
_LINE = 52
LOOKED_AT = 8000
"""Bytes in which git looks for a NUL to call a file binary."""


@dataclass(frozen=True, slots=True)
class FilePatch:
    """One file's part of a patch, and how many lines it adds and removes (none for binary files)."""

    text: str
    added: int = 0
    removed: int = 0


def file_patch(difference: Difference, old: bytes, new: bytes) -> FilePatch:
    """The part for one path. ``old`` and ``new`` are its bytes (a link's: its target), empty where there are none."""
    before, after = difference.old, difference.new
    if before and after and (before.git_mode == LINK) != (after.git_mode == LINK):
        # git has no change from file to link: it deletes the one and creates the other
        gone = file_patch(difference._replace(new=None), old, b"")
        made = file_patch(difference._replace(old=None), b"", new)
        return FilePatch(gone.text + made.text, made.added, gone.removed)
    lines = _headers(difference)
    if old == new and before and after:
        return FilePatch("\n".join(lines) + "\n")
    ids = (_blob(old) if before else _NO_BLOB, _blob(new) if after else _NO_BLOB)
    same = before and after and before.git_mode == after.git_mode
    lines.append(f"index {ids[0]}..{ids[1]}" + (f" {after.git_mode}" if same and after else ""))
    texts = _text(old), _text(new)
    if texts[0] is None or texts[1] is None:
        return FilePatch("\n".join([*lines, "GIT binary patch", *_literal(new)]) + "\n")
    diff = unified(texts[0], texts[1], "")
    if diff.text:
        lines += [f"--- {quoted('a/', difference.path) if before else '/dev/null'}"]
        lines += [f"+++ {quoted('b/', difference.path) if after else '/dev/null'}"]
        lines += [diff.text.split("\n", 2)[2].removesuffix("\n")]
    return FilePatch("\n".join(lines) + "\n", diff.added, diff.removed)


def quoted(side: str, path: str) -> str:
    """A path as git's headers have it: between quotes with escapes wherever it is not plain ASCII without spaces."""
    raw = side.encode() + os.fsencode(path)
    if _PLAIN_NAME.fullmatch(raw):
        return raw.decode("ascii")
    return '"' + "".join(chr(byte) if _is_plain(byte) else f"\\{byte:03o}" for byte in raw) + '"'


def _is_plain(byte: int) -> bool:
    return 0x20 <= byte < 0x7F and byte not in b'"\\'


def _headers(difference: Difference) -> list[str]:
    source = difference.source or difference.path
    lines = [f"diff --git {quoted('a/', source)} {quoted('b/', difference.path)}"]
    old, new = difference.old, difference.new
    if old is None and new:
        lines.append(f"new file mode {new.git_mode}")
    elif new is None and old:
        lines.append(f"deleted file mode {old.git_mode}")
    elif old and new and old.git_mode != new.git_mode:
        lines += [f"old mode {old.git_mode}", f"new mode {new.git_mode}"]
    if difference.source is not None:
        lines += ["similarity index 100%", f"rename from {quoted('', source)}"]
        lines += [f"rename to {quoted('', difference.path)}"]
    return lines


def _text(data: bytes) -> str | None:
    """The bytes as text, or None for what a patch must carry as binary."""
    if b"\0" in data[:LOOKED_AT]:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _literal(data: bytes) -> list[str]:
    """The bytes as git's binary patches hold them: deflated, in lines of up to 52 bytes in base 85."""
    packed = zlib.compress(data)
    lines = [f"literal {len(data)}"]
    for start in range(0, len(packed), _LINE):
        part = packed[start : start + _LINE]
        length = chr(ord("A") + len(part) - 1) if len(part) <= 26 else chr(ord("a") + len(part) - 27)
        lines.append(length + base64.b85encode(part, pad=True).decode("ascii"))
    return [*lines, ""]
