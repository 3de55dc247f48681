"""What became of a workspace's files: the list of changes and the patch, as git writes it, made in one go."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from shared.facts import FileChange
from shared.text import clip
from worker.text.diff import unified_diff
from worker.threads import give_way
from worker.workspace.allowance import Allowance
from worker.workspace.manifest import DIRECTORY, LINK, Difference, Manifest, StatEntry, content_of

_PLAIN_NAME = re.compile(rb"[!#-\[\]-~]+")
_NO_BLOB = "0" * 40
_LINE = 52
LOOKED_AT = 8000
"""Bytes in which git looks for a NUL to call a file binary."""
MAX_PATCH_BYTES = 2 * 1024 * 1024
MAX_CHANGES = 10_000
MAX_COMPARED_BYTES = 8 * 1024 * 1024
"""Of one file."""
MAX_COMPARED_LINES = 400_000
_MAX_NAMED = 20
_MAX_PATH_BYTES = 3500
"""git gives up a whole patch for a path that the system cannot open."""
_TOO_LARGE, _NO_TIME = "too large", "no time"


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
    diff = unified_diff(texts[0], texts[1], "")
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


@dataclass(frozen=True, slots=True)
class Facts:
    """``left_out`` and ``not_copied`` say, each in a sentence, what is not in the changes or the patch."""

    changes: Sequence[FileChange] = ()
    patch: str = ""
    left_out: Sequence[str] = ()
    not_copied: Sequence[str] = ()


@dataclass(slots=True)
class Comparison:
    """The files that differ, compared one after the other as long as the allowance lasts."""

    manifest: Manifest
    files: int
    base: int
    allowance: Allowance
    max_bytes: int
    _parts: list[str] = field(default_factory=list[str])
    _lacking: list[str] = field(default_factory=list[str])
    """The patch's lines for what it lacks."""
    _named: list[str] = field(default_factory=list[str])
    """The same for people."""

    def run(self) -> Facts:
        differences = self.manifest.differences(self.allowance)
        room = self.max_bytes
        changes: list[FileChange] = []
        for difference in differences[:MAX_CHANGES]:
            give_way()
            part, why = self._part(difference, room)
            if why:
                self._lack(difference, why)
            else:
                self._parts.append(part.text)
                room -= len(part.text.encode())
            changes.append(_change(difference, part, in_patch=not why))
        return Facts(changes, "".join([*self._lacking, *self._parts]), self._left_out(len(differences)))

    def _part(self, difference: Difference, room: int) -> tuple[FilePatch, str]:
        """The path's part of the patch, and why it is not in there."""
        nothing = FilePatch("")
        if DIRECTORY in (difference.old and difference.old.git_mode, difference.new and difference.new.git_mode):
            return nothing, "git's own state, which no patch carries"
        if len(os.fsencode(difference.path)) > _MAX_PATH_BYTES:
            return nothing, "its path is too long for git"
        if self.allowance.over:
            return nothing, _NO_TIME
        old_path = difference.source or difference.path
        old_at, new_at = self.manifest.base.get(old_path), self.manifest.now.get(difference.path)
        old = content_of(self.base, old_path, old_at, MAX_COMPARED_BYTES) if old_at else b""
        new = content_of(self.files, difference.path, new_at, MAX_COMPARED_BYTES) if new_at else b""
        if old is None or new is None:
            return nothing, _unread(old_at if old is None else new_at)
        if (only := _one_sided(old, new)) is not None and len(only) > room:
            lines = only.count(b"\n")
            return FilePatch("", *((lines, 0) if new else (0, lines))), _TOO_LARGE
        if max(old.count(b"\n"), new.count(b"\n")) > MAX_COMPARED_LINES and old != new:
            return nothing, f"{_TOO_LARGE}, more than {MAX_COMPARED_LINES} lines"
        part = file_patch(difference, old, new)
        return part, _TOO_LARGE if len(part.text.encode()) > room else ""

    def _lack(self, difference: Difference, why: str) -> None:
        self._lacking.append(f"# left out, {why}: {quoted('', difference.path)}\n")
        seen = self.manifest.now.get(difference.path)
        size = f" ({seen.size} bytes)" if seen and why.startswith(_TOO_LARGE) else ""
        if len(self._named) < _MAX_NAMED:
            self._named.append(f"{clip(shown_path(difference.path), 300)} is not in the patch: {why}{size}")

    def _left_out(self, count: int) -> list[str]:
        said = [*self._named]
        if (more := len(self._lacking) - len(self._named)) > 0:
            said.append(f"{more} more changed files are not in the patch")
        if count > MAX_CHANGES:
            said.append(f"{count - MAX_CHANGES} more changed files are not listed, nor in the patch")
        if self.allowance.over:
            said.append("the comparison was ended before it was complete: hashes and line counts may be missing")
        missed = self.manifest.missed
        said += [f"not looked at: {clip(shown_path(each), 300)}" for each in missed[:_MAX_NAMED]]
        return said


def _one_sided(old: bytes, new: bytes) -> bytes | None:
    """The text of a file that came or went as a whole: its patch is longer than itself. None for all others."""
    only = new if not old else old if not new else None
    return None if only is None or b"\0" in only[:LOOKED_AT] else only


def _unread(seen: StatEntry | None) -> str:
    return _TOO_LARGE if seen and seen.size > MAX_COMPARED_BYTES else "it could not be read"


def _change(difference: Difference, part: FilePatch, *, in_patch: bool) -> FileChange:
    old, new = difference.old, difference.new
    kind = "renamed" if difference.source else "created" if old is None else "deleted" if new is None else "modified"
    return FileChange.model_validate(
        {
            "path": shown_path(difference.path),
            "change": kind,
            "from": difference.source and shown_path(difference.source),
            "base_hash": old and old.sha256,
            "new_hash": new and new.sha256,
            "added_lines": part.added,
            "removed_lines": part.removed,
            "in_patch": in_patch,
        }
    )


def shown_path(path: str) -> str:
    """The path as JSON can hold it: names that are no UTF-8 have their odd bytes spelled out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
