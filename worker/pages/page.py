"""Some lines of a file, read piece by piece, and as much of them as one answer holds, with line numbers.

Neither a large file nor a line without an end fills the memory.
"""

from __future__ import annotations

import codecs
import os
import stat as modes
from collections.abc import Sequence
from dataclasses import dataclass, field

from rapidfuzz import fuzz, process

from shared.errors import ErrorType, ToolError
from shared.text import HALF_CHARACTER, clip
from shared.tokens import estimate
from worker.output import few_tokens
from worker.text.textfile import BYTE_ORDER_MARKS, binary_kind, format_remarks, not_text_error, number_lines
from worker.threads import give_way
from worker.workspace.file_errors import explain, not_a_file
from worker.workspace.files import Files

_SIMILAR = 60.0
"""Of 100; below it two names have little in common."""
LINE_CHARS = 2000
"""Of each line that is kept."""
_PIECE = 256 * 1024
_COUNTED = 64 * 1024 * 1024
"""Bytes after which lines below the wanted ones are not counted any more."""
_SEARCHED = 1024 * 1024 * 1024
"""Bytes after which the wanted lines are not looked for any more."""
PAGE_LINES = 2000
PAGE_TOKENS = 31_500
PAGE_CHARS = 126_000
"""A page and what is said below it stay inside the output limit of the tools that read, so that a page always ends at
a line's end."""


def no_such_file(files: Files, path: str) -> ToolError:
    """That the file is not there, and which of its would-be neighbours have a similar name."""
    folder, _, name = files.relative(path).rstrip("/").rpartition("/")
    try:
        names = [entry.name for entry in files.scan(folder or ".") if entry.stat.kind == "file"]
    except ToolError:
        return ToolError(ErrorType.FILE_NOT_FOUND, f"File not found: {path}. There is no directory {folder} either.")
    near = process.extract(name, names, scorer=fuzz.ratio, score_cutoff=_SIMILAR, limit=3)
    found = [f"{folder}/{each}" if folder else each for each, _, _ in near]
    hint = f". Did you mean {' or '.join(found)}?" if found else ""
    return ToolError(ErrorType.FILE_NOT_FOUND, f"File not found: {path}{hint}")


@dataclass(slots=True)
class Stretch:
    """The lines from ``first``, each clipped, as many as were asked for or as ``max_chars`` has room for, plus one.

    ``total`` is how many lines the file has, None where it is too large to count them.
    """

    first: int
    lines: list[str] = field(default_factory=list[str])
    total: int | None = 0
    remarks: list[str] = field(default_factory=list[str])
    is_ended: bool = True
    """Whether the last line has an end, as far as the file was read."""


def read_stretch(files: Files, path: str, first: int, most: int, max_chars: int) -> Stretch:
    """Reads at most ``most`` lines. Raises ToolError: NOT_TEXT, NOT_A_FILE, and FILE_TOO_LARGE where the first line
    lies too far behind the start."""
    fd = files.open_fd(path)
    try:
        found = os.fstat(fd)
        if not modes.S_ISREG(found.st_mode):
            raise not_a_file(path, found.st_mode)
        try:
            return _Reader(fd, first, most, max_chars).read(path, found.st_size)
        except UnicodeDecodeError:
            raise not_text_error(path, "binary data", found.st_size) from None
        except OSError as error:
            raise explain(path, error, files.mount) from None
    finally:
        os.close(fd)


class _Reader:
    def __init__(self, fd: int, first: int, most: int, max_chars: int) -> None:
        self._fd, self._first, self._most, self._room = fd, first, most, max_chars
        self._stretch = Stretch(first)
        self._number = 1
        """Of the line that is being read."""
        self._head, self._length = "", 0
        """Of that line: its start, and how many characters of it were read."""
        self._returned = False
        self._breaks = self._crlf = 0
        self._invalid = False
        self._last = ""

    def read(self, path: str, size: int) -> Stretch:
        piece = os.read(self._fd, _PIECE)
        bom, encoding = next(
            ((bom, name) for bom, name, _ in BYTE_ORDER_MARKS if piece.startswith(bom)), (b"", "utf-8")
        )
        if not bom and (kind := binary_kind(piece)):
            raise not_text_error(path, kind, size)
        decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
        done = len(piece)
        piece = piece[len(bom) :]
        while piece:
            self._add(decoder.decode(piece))
            if done > _COUNTED and (self._is_full or done > _SEARCHED):
                return self._cut_off(path)
            give_way()
            piece = os.read(self._fd, _PIECE)
            done += len(piece)
        self._add(decoder.decode(b"", final=True))
        return self._finished(bom)

    @property
    def _is_full(self) -> bool:
        return len(self._stretch.lines) >= self._most or self._room < 0

    def _add(self, text: str) -> None:
        if not text:
            return
        self._crlf += text.count("\r\n") + (self._last == "\r" and text[0] == "\n")
        self._invalid = self._invalid or (not text.isascii() and HALF_CHARACTER.search(text) is not None)
        self._last = text[-1]
        breaks = text.count("\n")
        self._breaks += breaks
        if self._is_full or self._number + breaks < self._first:
            self._number += breaks
            self._head, self._length = "", len(text) - text.rfind("\n") - 1 + (0 if breaks else self._length)
            return
        *whole, rest = text.split("\n")
        for line in whole:
            self._continue(line)
            self._end()
        self._continue(rest)

    def _continue(self, text: str) -> None:
        self._head += text[: LINE_CHARS + 1 - len(self._head)]
        self._length += len(text)
        self._returned = text.endswith("\r") if text else self._returned

    def _end(self) -> None:
        if self._number >= self._first and not self._is_full:
            length = self._length - self._returned
            shown = clip(HALF_CHARACTER.sub("\ufffd", self._head[:length]), LINE_CHARS, length)
            self._stretch.lines.append(shown)
            self._room -= len(shown) + 8
        self._number += 1
        self._head, self._length, self._returned = "", 0, False

    def _finished(self, bom: bytes) -> Stretch:
        self._stretch.is_ended = not self._length
        if self._length:
            self._end()
        self._stretch.total = self._number - 1
        self._stretch.remarks = format_remarks(bom, self._breaks, self._crlf, invalid=self._invalid)
        return self._stretch

    def _cut_off(self, path: str) -> Stretch:
        if not self._is_full:
            raise ToolError(
                ErrorType.FILE_TOO_LARGE,
                f"File too large: line {self._first} of {path} lies more than {_SEARCHED} bytes behind its start. "
                "Search it with grep, or cut the part out with bash (sed -n, tail -c).",
            )
        self._stretch.total = None
        return self._stretch


@dataclass(frozen=True, slots=True)
class Room:
    """How much a page may hold."""

    lines: int = PAGE_LINES
    chars: int = PAGE_CHARS
    tokens: int = PAGE_TOKENS


def page(lines: Sequence[str], first: int, room: Room) -> tuple[str, int]:
    """As many of the lines as there is room for, numbered from ``first``, and how many those are; never less than one.

    Of each line at most ``LINE_CHARS`` characters are shown.
    """
    kept: list[str] = []
    size = 0
    for line in lines[: room.lines]:
        kept.append(clip(line, LINE_CHARS))
        size += len(kept[-1]) + 8
        if size > room.chars and len(kept) > 1:
            kept.pop()
            break
    text = number_lines(kept, first)
    while len(kept) > 1 and not few_tokens(text, room.tokens) and (tokens := estimate(text)) > room.tokens:
        kept = kept[: max(1, int(len(kept) * room.tokens / tokens * 0.95))]
        text = number_lines(kept, first)
    return text, len(kept)


def remarks(stretch: Stretch, *more: str) -> str:
    """What the lines do not show: encoding, line ends, a missing last one; "" where there is nothing to say."""
    said = [*more]
    if stretch.remarks:
        said.append(f"The file has {', '.join(stretch.remarks)}.")
    if stretch.total and not stretch.is_ended:
        said.append("There is no line end after the last line.")
    return f"({' '.join(said)})" if said else ""
