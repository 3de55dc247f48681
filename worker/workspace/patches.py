"""The changes of a workspace's files: the list of changed files and a patch in git's format, from one comparison."""

from __future__ import annotations

import base64
import os
import re
import zlib
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ...shared.facts import FileChange
from ...shared.listed import OuterRules, ignored_files
from ...shared.patch_format import NOT_IN_GIT, TOO_LARGE, blob_id, is_safe, literal_of, omission, printable_path
from ...shared.text import clip
from ..text.diff import unified_diff
from ..threads import give_way, release_slot
from .manifest import DIRECTORY, LINK, Deadline, Difference, read_content
from .snapshots import Snapshots
from .tree_copy import special_sentences

_PLAIN_NAME = re.compile(rb"[!#-\[\]-~]+")
_UNESCAPED = bytes(byte for byte in range(0x20, 0x7F) if byte not in b'"\\')
_NO_BLOB = "0" * 40
_LINE = 52
_BINARY = re.compile(r"^(GIT binary patch\n)(literal \d+\n(?:[A-Za-z].+\n)*+)", re.MULTILINE)
BINARY_CHECK_BYTES = 8000
"""Bytes in which git searches for a NUL to recognize a binary file."""
MAX_PATCH_BYTES = 2 * 1024 * 1024
MAX_CHANGES = 10_000
MAX_COMPARED_BYTES = 8 * 1024 * 1024
"""Bytes of one file."""
MAX_COMPARED_LINES = 400_000
MAX_IGNORED = 1000
_MAX_NAMED = 20
_MAX_PATH_BYTES = 3500
"""git rejects a whole patch for one path that the system cannot open."""
_NO_TIME = "no time"
_IN_NO_PATCH = "is in no patch"


@dataclass(frozen=True, slots=True)
class FilePatch:
    """One file's part of a patch, and the number of lines it adds and removes (0 for binary files)."""

    text: str
    added: int = 0
    removed: int = 0


def file_patch(difference: Difference, old: bytes, new: bytes) -> FilePatch:
    """Returns the patch for one path. ``old`` and ``new`` are its contents (a link's target), or empty."""
    before, after = difference.old, difference.new
    if before and after and (before.git_mode == LINK) != (after.git_mode == LINK):
        # git has no change from file to link: one is deleted and the other created
        gone = file_patch(difference._replace(new=None), old, b"")
        made = file_patch(difference._replace(old=None), b"", new)
        return FilePatch(gone.text + made.text, made.added, gone.removed)
    lines = _headers(difference)
    if old == new and before and after:
        return FilePatch("\n".join(lines) + "\n")
    ids = (blob_id(old) if before else _NO_BLOB, blob_id(new) if after else _NO_BLOB)
    same = before and after and before.git_mode == after.git_mode
    lines.append(f"index {ids[0]}..{ids[1]}" + (f" {after.git_mode}" if same and after else ""))
    texts = _decode(old), _decode(new)
    if texts[0] is None or texts[1] is None:
        return FilePatch("\n".join([*lines, "GIT binary patch", *_binary_literal(new)]) + "\n")
    diff = unified_diff(texts[0], texts[1], "")
    if diff.text:
        lines += [f"--- {quote_path('a/', difference.path) if before else '/dev/null'}"]
        lines += [f"+++ {quote_path('b/', difference.path) if after else '/dev/null'}"]
        lines += [diff.text.split("\n", 2)[2].removesuffix("\n")]
    return FilePatch("\n".join(lines) + "\n", diff.added, diff.removed)


def change_of(difference: Difference) -> str:
    """Returns what happened to the path, in a word of the result."""
    if difference.source:
        return "renamed"
    return "created" if difference.old is None else "deleted" if difference.new is None else "modified"


def quote_path(side: str, path: str) -> str:
    """Returns the path as in git's headers: quoted and escaped unless it is plain ASCII without spaces."""
    raw = side.encode() + os.fsencode(path)
    if _PLAIN_NAME.fullmatch(raw):
        return raw.decode("ascii")
    return '"' + "".join(chr(byte) if byte in _UNESCAPED else f"\\{byte:03o}" for byte in raw) + '"'


def _headers(difference: Difference) -> list[str]:
    source = difference.source or difference.path
    lines = [f"diff --git {quote_path('a/', source)} {quote_path('b/', difference.path)}"]
    old, new = difference.old, difference.new
    if old is None and new:
        lines.append(f"new file mode {new.git_mode}")
    elif new is None and old:
        lines.append(f"deleted file mode {old.git_mode}")
    elif old and new and old.git_mode != new.git_mode:
        lines += [f"old mode {old.git_mode}", f"new mode {new.git_mode}"]
    if difference.source is not None:
        lines += ["similarity index 100%", f"rename from {quote_path('', source)}"]
        lines += [f"rename to {quote_path('', difference.path)}"]
    return lines


def is_text(data: bytes) -> bool:
    """Whether a patch contains the content as lines."""
    return _decode(data) is not None


def _decode(data: bytes) -> str | None:
    """Decodes a text file; returns None for a file that a patch must contain as binary."""
    if b"\0" in data[:BINARY_CHECK_BYTES]:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _binary_literal(data: bytes) -> list[str]:
    """Returns the lines of git's binary patch: deflated, at most 52 bytes per line, in base 85."""
    packed = zlib.compress(data)
    lines = [f"literal {len(data)}"]
    for start in range(0, len(packed), _LINE):
        part = packed[start : start + _LINE]
        length = chr(ord("A") + len(part) - 1) if len(part) <= 26 else chr(ord("a") + len(part) - 27)
        lines.append(length + base64.b85encode(part, pad=True).decode("ascii"))
    return [*lines, ""]


@dataclass(frozen=True, slots=True)
class Facts:
    """The changes and the patch; ``left_out`` and ``not_copied`` are sentences about what these do not include.

    New files that git ignores do not count as changes: ``ignored`` has the paths of the first ones.
    """

    changes: Sequence[FileChange] = ()
    patch: str = ""
    left_out: Sequence[str] = ()
    not_copied: Sequence[str] = ()
    ignored: Sequence[str] = ()
    ignored_count: int = 0


def with_masked_binaries(facts: Facts, mask: Callable[[str], str]) -> Facts:
    """Returns facts with ``mask`` applied to what binary files of the patch hold, also to UTF-16."""

    def masked(found: re.Match[str]) -> str:
        data = literal_of(found[2].encode().split(b"\n"))
        for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
            errors = "surrogateescape" if encoding == "utf-8" else "surrogatepass"
            with suppress(UnicodeError):
                text = data.decode(encoding, errors)
                data = data if (changed := mask(text)) == text else changed.encode(encoding, errors)
        return found[1] + "\n".join(_binary_literal(data))

    return replace(facts, patch=_BINARY.sub(masked, facts.patch))


@dataclass(slots=True)
class Comparison:
    """A comparison of all files that differ, one after the other until the deadline."""

    snapshots: Snapshots
    files: int
    base: int
    deadline: Deadline
    max_bytes: int
    outer: OuterRules | None = None
    """Rules from outside for what git ignores; None where ignored files are changes as all others are."""
    without_git: bool = False
    """Whether changes of git's own state do not count."""
    restored: Collection[str] = ()
    """Paths that may be left out of the patch: what was renamed to or from one of them is deleted and created."""
    _parts: list[str] = field(default_factory=list[str])
    _comments: list[str] = field(default_factory=list[str])
    """Comment lines of the patch about omitted files."""
    _sentences: list[str] = field(default_factory=list[str])
    """Sentences about omitted files, for users."""
    _unlisted: list[str] = field(default_factory=list[str])

    def differences(self) -> tuple[list[Difference], list[str]]:
        """Returns the changes by content, and the new files that git ignores, which are none."""
        differences = self.snapshots.differences(self.deadline)
        if self.without_git:
            differences = [each for each in differences if ".git" not in each.path.split("/")]
        paths = set[str]() if self.outer is None else self._ignored(differences, self.outer)
        ignored = [printable_path(each.path) for each in differences if each.path in paths]
        return [each for each in differences if each.path not in paths], ignored

    def run(self) -> Facts:
        """Compares the files. Returns the changes, the patch, and what they do not include."""
        differences, ignored = self.differences()
        differences = [part for each in differences for part in (each.apart() if self._crosses(each) else [each])]
        bytes_left = self.max_bytes
        changes: list[FileChange] = []
        for difference in differences[:MAX_CHANGES]:
            give_way()
            part, why = self._part(difference, bytes_left)
            if why:
                self._omit(difference, why)
            else:
                self._parts.append(part.text)
                bytes_left -= len(part.text.encode())
            changes.append(self._file_change(difference, part, in_patch=not why))
        patch = "".join([*self._comments, *self._parts])
        left_out = self._left_out(len(differences))
        made = special_sentences(self.snapshots.special, _IN_NO_PATCH)
        return Facts(changes, patch, left_out, made, ignored[:MAX_IGNORED], len(ignored))

    def _crosses(self, difference: Difference) -> bool:
        """Whether a file was renamed between a path that may be left out and one that may not."""
        paths = difference.path, difference.source or ""
        sides = ((printable_path(path) in self.restored, is_safe(path)) for path in paths)
        return difference.source is not None and len({*sides}) > 1

    def _ignored(self, differences: Sequence[Difference], outer: OuterRules) -> set[str]:
        """Returns the new files that git would not list as changes."""
        new = [
            each.path
            for each in differences
            if not each.old and not each.source and each.new and each.new.git_mode != DIRECTORY
        ]
        try:
            return ignored_files(self.files, new, outer, lambda: self.deadline.expired, release_slot)
        except OSError as error:
            why = error.strerror or str(error)
            self._unlisted.append(f"new files that .gitignore names count as changes: git could not be asked ({why})")
            return set()

    def _part(self, difference: Difference, bytes_left: int) -> tuple[FilePatch, str]:
        """Returns the path's part of the patch, and the reason if it is omitted."""
        nothing = FilePatch("")
        if DIRECTORY in (difference.old and difference.old.git_mode, difference.new and difference.new.git_mode):
            return nothing, "git's own state, which a patch cannot contain"
        if not is_safe(difference.path):
            return nothing, NOT_IN_GIT
        if len(os.fsencode(difference.path)) > _MAX_PATH_BYTES:
            return nothing, "its path is too long for git"
        if self.deadline.expired:
            return nothing, _NO_TIME
        old_path = difference.source or difference.path
        old_at, new_at = self.snapshots.base.get(old_path), self.snapshots.now.get(difference.path)
        old = read_content(self.base, old_path, old_at, MAX_COMPARED_BYTES) if old_at else b""
        new = read_content(self.files, difference.path, new_at, MAX_COMPARED_BYTES) if new_at else b""
        if old is None or new is None:
            entry = old_at if old is None else new_at
            return nothing, TOO_LARGE if entry and entry.size > MAX_COMPARED_BYTES else "it could not be read"
        if (only := _one_sided(old, new)) is not None and len(only) > bytes_left:
            lines = only.count(b"\n")
            return FilePatch("", *((lines, 0) if new else (0, lines))), TOO_LARGE
        if max(old.count(b"\n"), new.count(b"\n")) > MAX_COMPARED_LINES and old != new:
            return nothing, f"{TOO_LARGE}, more than {MAX_COMPARED_LINES} lines"
        part = file_patch(difference, old, new)
        return part, TOO_LARGE if len(part.text.encode()) > bytes_left else ""

    def _omit(self, difference: Difference, why: str) -> None:
        self._comments.append(f"# left out, {why}: {quote_path('', difference.path)}\n")
        entry = self.snapshots.now.get(difference.path)
        size = f" ({entry.size} bytes)" if entry and why.startswith(TOO_LARGE) else ""
        if len(self._sentences) < _MAX_NAMED:
            self._sentences.append(f"{omission(difference.path)}{why}{size}")

    def _file_change(self, difference: Difference, part: FilePatch, *, in_patch: bool) -> FileChange:
        old, new = difference.old, difference.new
        entry = self.snapshots.now.get(difference.path) if new else None
        return FileChange.model_validate(
            {
                "path": printable_path(difference.path),
                "change": change_of(difference),
                "from": difference.source and printable_path(difference.source),
                "base_hash": old and old.sha256,
                "new_hash": new and new.sha256,
                "added_lines": part.added,
                "removed_lines": part.removed,
                "in_patch": in_patch,
                "size": entry and entry.size,
            }
        )

    def _left_out(self, count: int) -> list[str]:
        sentences = [*self._sentences]
        if (more := len(self._comments) - len(self._sentences)) > 0:
            sentences.append(f"{more} more changed files are not in the patch")
        if count > MAX_CHANGES:
            sentences.append(f"{count - MAX_CHANGES} more changed files are not listed, nor in the patch")
        if self.deadline.expired:
            sentences.append("the comparison ended before it was complete: hashes and line counts may be missing")
        sentences += self._unlisted
        unread = self.snapshots.unread
        sentences += [f"not compared: {clip(printable_path(each), 300)}" for each in unread[:_MAX_NAMED]]
        return sentences


def _one_sided(old: bytes, new: bytes) -> bytes | None:
    """Returns the text of a created or deleted file, whose patch is longer than the text; None for other changes."""
    only = new if not old else old if not new else None
    return None if only is None or b"\0" in only[:BINARY_CHECK_BYTES] else only
