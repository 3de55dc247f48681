"""Patches in git's format, as runs report them: one part per changed file, and a part's effect on a content."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from .errors import Invalid
from .text import clip

_START = b"diff --git "
_PATHS = re.compile(rb'diff --git ("(?:[^"\\]|\\.)*"|[^" ][^ ]*) (.+)')
"""git quotes paths with spaces or other bytes than plain ASCII."""
_PIECE = re.compile(r"^(?=diff --git )", re.MULTILINE)
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_BLOB = "0" * 40
_NO_END = b"\\ No newline at end of file"
_CONTEXT = 3
_SIGNS = {b"+": b"-", b"-": b"+", b" ": b" "}
_ESCAPED = re.compile(rb'\\([0-7]{3}|["\\])')
_OF_GIT = re.compile(r"(?:\.git|git~1)[ .]*(?::.*)?", re.ASCII | re.DOTALL | re.IGNORECASE)
"""Names that some file systems take for git's own directory, so that git refuses them everywhere."""
TOO_LARGE = "too large"
NOT_IN_GIT = "git accepts no file at such a path"
_MAX_PATH_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Hunk:
    """Changed lines with their context; ``start`` is the position of the first one in the old content, from 0."""

    start: int
    new_start: int
    lines: Sequence[tuple[bytes, bytes]]
    """Sign and line, the latter with its line end."""

    @property
    def old(self) -> list[bytes]:
        return [line for sign, line in self.lines if sign != b"+"]

    @property
    def new(self) -> list[bytes]:
        return [line for sign, line in self.lines if sign != b"-"]

    def reversed(self) -> Hunk:
        return Hunk(self.new_start, self.start, [(_SIGNS[sign], line) for sign, line in self.lines])

    def place(self, lines: Sequence[bytes]) -> int | None:
        """Returns where in ``lines`` the old lines are, None unless it is exactly one place.

        Less context than usual stands for an end of the file, which must be there, too.
        """
        old, signs = self.old, [sign for sign, _ in self.lines]
        first = 0 if signs[:_CONTEXT].count(b" ") < _CONTEXT else None
        last = len(lines) - len(old) if signs[-_CONTEXT:].count(b" ") < _CONTEXT else None
        found = [
            at
            for at in range(len(lines) - len(old) + 1)
            if (first is None or at == first) and (last is None or at == last) and lines[at : at + len(old)] == old
        ]
        return found[0] if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class PatchPart:
    """The change of one path. A side without path, mode or id does not exist, or is not known.

    ``literal`` is the new content of a binary file, None in a reversed part, because patches have only the new one.
    """

    old_path: str | None
    new_path: str | None
    old_mode: str | None = None
    new_mode: str | None = None
    old_id: str | None = None
    new_id: str | None = None
    hunks: Sequence[Hunk] = ()
    binary: bool = False
    literal: bytes | None = None

    @property
    def path(self) -> str:
        return self.new_path or self.old_path or ""

    def reversed(self) -> PatchPart:
        return PatchPart(
            self.new_path,
            self.old_path,
            self.new_mode,
            self.old_mode,
            self.new_id,
            self.old_id,
            [hunk.reversed() for hunk in self.hunks],
            self.binary,
        )

    def result(self, old: bytes) -> bytes | None:
        """Returns the new content made from exactly the old one; None if that is not possible."""
        if self.binary:
            return self.literal
        lines, done, out = split_lines(old), 0, list[bytes]()
        for hunk in self.hunks:
            if lines[hunk.start : hunk.start + len(hunk.old)] != hunk.old:
                return None
            out += [*lines[done : hunk.start], *hunk.new]
            done = hunk.start + len(hunk.old)
        return b"".join([*out, *lines[done:]])

    def merged_by_context(self, current: bytes) -> bytes | None:
        """Returns another content with each hunk at the one place where its old lines are; None if there is none."""
        lines = split_lines(current)
        for hunk in reversed(self.hunks):
            at = hunk.place(lines)
            if at is None:
                return None
            lines[at : at + len(hunk.old)] = hunk.new
        return b"".join(lines)


def split_lines(data: bytes) -> list[bytes]:
    """Splits a content into lines with their ends; only a line feed ends one."""
    *ended, rest = data.split(b"\n")
    return [line + b"\n" for line in ended] + ([rest] if rest else [])


def parse_patch(text: str) -> list[PatchPart]:
    """Returns the parts of a patch. Raises Invalid if it is not a patch in git's format or names unsafe paths."""
    lines = text.encode().split(b"\n")
    starts = [at for at, line in enumerate(lines) if line.startswith(_START)]
    try:
        parts = [_part(lines[at:end]) for at, end in pairwise([*starts, len(lines)])]
    except (ValueError, IndexError, KeyError, zlib.error) as error:
        raise Invalid(f"the patch of this delegation is not in git's format ({error})") from None
    for part in parts:
        for path in (part.old_path, part.new_path):
            if path is not None:
                check_path(path)
    return parts


def without(text: str, paths: Collection[str]) -> str:
    """Returns a patch without the changes of these paths, which are written as in results."""
    if not paths:
        return text

    def is_wanted(piece: str) -> bool:
        named = _PATHS.fullmatch(piece.split("\n", 1)[0].encode())
        sides = [_unquoted(side)[2:] for side in named.groups()] if named else []
        return not any(printable_path(path) in paths for path in sides)

    return "".join(filter(is_wanted, _PIECE.split(text)))


def blob_id(data: bytes) -> str:
    """Returns git's id of a content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def created_part(path: str, data: bytes, *, executable: bool) -> PatchPart:
    """Returns the part that creates a file."""
    mode = "100755" if executable else "100644"
    return PatchPart(None, path, new_mode=mode, new_id=blob_id(data), binary=True, literal=data)


def check_path(path: str) -> None:
    """Raises Invalid for a path that leads elsewhere."""
    if not is_safe(path):
        raise Invalid(f"{path!r}, which this delegation names, is not a safe path")


def printable_path(path: str) -> str:
    """Returns the path as valid UTF-8, with other bytes as backslash escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def omission(path: str) -> str:
    """Returns how the sentence about a changed path that a patch lacks begins, up to the reason."""
    return f"{clip(printable_path(path), _MAX_PATH_SHOWN)} is not in the patch: "


def is_safe(path: str) -> bool:
    """Whether the path stays below its directory, and is not in git's own, where a file could become a command."""
    is_below = {"", ".", ".."}.isdisjoint(path.split("/"))
    return is_below and not any(map(_OF_GIT.fullmatch, path.replace("\\", "/").split("/")))


def _part(lines: Sequence[bytes]) -> PatchPart:
    paths = _PATHS.fullmatch(lines[0])
    if paths is None:
        raise ValueError("its paths cannot be read")
    part = PatchPart(_unquoted(paths[1]).removeprefix("a/"), _unquoted(paths[2]).removeprefix("b/"))
    for at, line in enumerate(lines[1:], 1):
        if line.startswith(b"@@ "):
            return replace(part, hunks=[*_hunks(lines[at:])])
        if line.startswith(b"GIT binary patch"):
            return replace(part, binary=True, literal=literal_of(lines[at + 1 :]))
        part = _with_header(part, *line.decode().rpartition(" ")[::2])
    return part


def _with_header(part: PatchPart, name: str, value: str) -> PatchPart:
    match name:
        case "new file mode":
            return replace(part, old_path=None, new_mode=value)
        case "deleted file mode":
            return replace(part, new_path=None, old_mode=value)
        case "old mode":
            return replace(part, old_mode=value)
        case "new mode":
            return replace(part, new_mode=value)
        case _ if name.startswith("index ") or name == "index":
            ids, mode = (name.removeprefix("index "), value) if name != "index" else (value, None)
            old, new = (None if each == _NO_BLOB else each for each in ids.split(".."))
            return replace(part, old_id=old, new_id=new, old_mode=mode or part.old_mode, new_mode=mode or part.new_mode)
        case _:
            return part


def _hunks(lines: Sequence[bytes]) -> Iterator[Hunk]:
    at = 0
    while at < len(lines) and (head := _HUNK.match(lines[at])):
        start, old, new_start, new = (int(number or 1) for number in head.groups())
        at, found = at + 1, list[tuple[bytes, bytes]]()
        old_left, new_left = old, new
        while old_left or new_left or lines[at : at + 1] == [_NO_END]:
            sign, line = lines[at][:1], lines[at][1:] + b"\n"
            at += 1
            if sign == b"\\":
                found[-1] = (found[-1][0], found[-1][1].removesuffix(b"\n"))
                continue
            found.append((sign, line))
            old_left -= sign != b"+"
            new_left -= sign != b"-"
            _ = _SIGNS[sign]
        yield Hunk(start - 1 if old else start, new_start - 1 if new else new_start, found)


def literal_of(lines: Sequence[bytes]) -> bytes:
    """Returns the content in the lines of a binary patch. Raises ValueError for one that is not whole."""
    size = int(lines[0].removeprefix(b"literal "))
    packed = bytearray()
    for line in lines[1:]:
        if not line:
            break
        length = line[0] - 64 if line[0] <= 90 else line[0] - 96 + 26
        packed += base64.b85decode(line[1:])[:length]
    data = zlib.decompress(packed)
    if len(data) != size:
        raise ValueError("a binary content is incomplete")
    return data


def _unquoted(path: bytes) -> str:
    if path.startswith(b'"'):
        path = _ESCAPED.sub(lambda found: found[1] if len(found[1]) == 1 else bytes([int(found[1], 8)]), path[1:-1])
    return path.decode("utf-8", "surrogateescape")
