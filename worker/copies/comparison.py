"""What became of a workspace's files: the list of changes and the patch, made in one go, and what they lack."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from shared.changes import FileChange
from worker.copies.allowance import Allowance
from worker.copies.manifest import DIRECTORY, Difference, Manifest, Seen, content_of
from worker.copies.patch import LOOKED_AT, FilePatch, file_patch, quoted
from worker.output import clip
from worker.threads import give_way

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


def _unread(seen: Seen | None) -> str:
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
