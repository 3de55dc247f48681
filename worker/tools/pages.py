"""Some lines of a text file, with line numbers, as many as fit into one tool output.

The file is read in chunks, so that neither a large file nor an endless line fills the memory.
"""

from __future__ import annotations

import codecs
import os
import re
import stat as modes
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from threading import Event

from rapidfuzz import fuzz, process

from ...shared.errors import ErrorType, ToolError
from ...shared.text import HALF_CHARACTER, clip, count, valid
from ...shared.tokens import tokens_at_most
from ..sandbox.base import Sandbox
from ..search.listing import find_files
from ..search.ripgrep import SkippedPaths
from ..text.output import few_tokens, one_line
from ..text.textfile import BYTE_ORDER_MARKS, binary_kind, format_remarks, not_text_error, number_lines
from ..threads import give_way
from ..workspace.file_errors import not_a_file, tool_error
from ..workspace.files import Files

_SIMILAR = 60.0
"""The least similarity, of 100, of a file name that is suggested."""
LINE_CHARS = 2000
"""Characters shown of each line."""
_NUMBER_CHARS = 8
"""Characters of a line's number, the bar and the line end."""
_PIECE = 256 * 1024
_COUNTED = 64 * 1024 * 1024
"""Bytes of a file after which the lines after the wanted ones are not counted."""
_SEARCHED = 1024 * 1024 * 1024
"""Bytes of a file after which the search for the wanted lines ends."""
PAGE_LINES = 2000
PAGE_TOKENS = 31_500
PAGE_CHARS = 126_000
"""A page and the remarks below it stay within the output limit of the tools that read, so that a page always ends at
the end of a line."""


def file_not_found_error(files: Files, path: str) -> ToolError:
    """Returns the error for a missing file, with files of the same directory that have a similar name."""
    folder, _, name = files.relative(path).rstrip("/").rpartition("/")
    try:
        names = [entry.name for entry in files.scan(folder or ".") if entry.stat.kind == "file"]
    except ToolError:
        return ToolError(ErrorType.FILE_NOT_FOUND, f"File not found: {path}. There is no directory {folder}.")
    near = process.extract(name, names, scorer=fuzz.ratio, score_cutoff=_SIMILAR, limit=3)
    found = [f"{folder}/{each}" if folder else each for each, _, _ in near]
    hint = f". Did you mean {' or '.join(found)}?" if found else ""
    return ToolError(ErrorType.FILE_NOT_FOUND, f"File not found: {path}{hint}")


@dataclass(slots=True)
class FileLines:
    """Lines of a file from ``first`` on, each clipped: as many as requested, or as ``max_chars`` allows, plus one.

    ``total`` is the number of all lines, None if the file is too large to count them.
    """

    first: int
    lines: list[str] = field(default_factory=list[str])
    total: int | None = 0
    remarks: list[str] = field(default_factory=list[str])
    is_ended: bool = True
    """Whether the last line that was read has a line end."""


def read_lines(files: Files, path: str, first: int, most: int, max_chars: int) -> FileLines:
    """Reads lines of a text file.

    Args:
        files: The workspace.
        path: The file.
        first: The number of the first line, from 1.
        most: The largest number of lines.
        max_chars: Characters after which no further line is kept.

    Raises:
        ToolError: NOT_TEXT, NOT_A_FILE, or FILE_TOO_LARGE if the first line is too far from the start of the file.
    """
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
            raise tool_error(path, error, files.mount) from None
    finally:
        os.close(fd)


class _Reader:
    def __init__(self, fd: int, first: int, most: int, max_chars: int) -> None:
        self._fd, self._first, self._most, self._chars_left = fd, first, most, max_chars
        self._content = FileLines(first)
        self._number = 1
        """The number of the current line."""
        self._head, self._length = "", 0
        """The start of the current line, and how many characters of it were read."""
        self._returned = False
        self._breaks = self._crlf = 0
        self._invalid = False
        self._last = ""

    def read(self, path: str, size: int) -> FileLines:
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
        return len(self._content.lines) >= self._most or self._chars_left < 0

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
        self._add_each(whole[:1])  # it may have begun in the piece before
        if not self._add_together(whole[1:]):
            self._add_each(whole[1:])
        self._continue(rest)

    def _add_each(self, lines: list[str]) -> None:
        for line in lines:
            self._continue(line)
            self._end()

    def _add_together(self, lines: list[str]) -> bool:
        """Adds complete lines at a fraction of the cost; does nothing and returns False where one must be altered."""
        wanted = lines[max(0, self._first - self._number) :][: self._most - len(self._content.lines)]
        if self._crlf:
            wanted = [line.removesuffix("\r") for line in wanted]
        left = self._chars_left - sum(map(len, wanted)) - _NUMBER_CHARS * len(wanted)
        if left < 0 or self._invalid or max(map(len, wanted), default=0) > LINE_CHARS:
            return False
        self._content.lines += wanted
        self._chars_left = left
        self._number += len(lines)
        return True

    def _continue(self, text: str) -> None:
        self._head += text[: LINE_CHARS + 1 - len(self._head)]
        self._length += len(text)
        self._returned = text.endswith("\r") if text else self._returned

    def _end(self) -> None:
        if self._number >= self._first and not self._is_full:
            length = self._length - self._returned
            shown = clip(HALF_CHARACTER.sub("\ufffd", self._head[:length]), LINE_CHARS, length)
            self._content.lines.append(shown)
            self._chars_left -= len(shown) + _NUMBER_CHARS
        self._number += 1
        self._head, self._length, self._returned = "", 0, False

    def _finished(self, bom: bytes) -> FileLines:
        self._content.is_ended = not self._length
        if self._length:
            self._end()
        self._content.total = self._number - 1
        self._content.remarks = format_remarks(bom, self._breaks, self._crlf, invalid=self._invalid)
        return self._content

    def _cut_off(self, path: str) -> FileLines:
        if not self._is_full:
            raise ToolError(
                ErrorType.FILE_TOO_LARGE,
                f"File too large: line {self._first} of {path} is more than {_SEARCHED} bytes after its start. "
                "Search it with grep, or extract the part with bash (sed -n, tail -c).",
            )
        self._content.total = None
        return self._content


@dataclass(frozen=True, slots=True)
class PageLimits:
    """The largest size of a page."""

    lines: int = PAGE_LINES
    chars: int = PAGE_CHARS
    tokens: int = PAGE_TOKENS


def format_page(lines: Sequence[str], first: int, limits: PageLimits) -> tuple[str, int]:
    """Formats as many lines as the limits allow, at least one, each with at most ``LINE_CHARS`` characters.

    Returns:
        The text with line numbers from ``first`` on, and the number of lines in it.
    """
    kept = [line if len(line) <= LINE_CHARS else clip(line, LINE_CHARS) for line in lines[: limits.lines]]
    if sum(map(len, kept)) + _NUMBER_CHARS * len(kept) > limits.chars:
        sizes = list(accumulate(len(line) + _NUMBER_CHARS for line in kept))
        kept = kept[: max(1, bisect_right(sizes, limits.chars))]
    text = number_lines(kept, first)
    while len(kept) > 1 and not few_tokens(text, limits.tokens) and (tokens := tokens_at_most(text)) > limits.tokens:
        kept = kept[: max(1, int(len(kept) * limits.tokens / tokens * 0.95))]
        text = number_lines(kept, first)
    return text, len(kept)


def format_remark_line(content: FileLines, *more: str) -> str:
    """Returns remarks about encoding, line ends and a missing last line end, in parentheses; "" for none."""
    sentences = [*more]
    if content.remarks:
        sentences.append(f"The file has {', '.join(content.remarks)}.")
    if content.total and not content.is_ended:
        sentences.append("There is no line end after the last line.")
    return f"({' '.join(sentences)})" if sentences else ""


_RESERVED = 4000
"""Characters, and tokens, reserved for the names of omitted files."""
_WILD = re.compile(r"[*?\[{]")


@dataclass(slots=True)
class ManyFiles:
    """The requested files, their sections, and the size that is left. An error of one file does not stop the others."""

    files: Files
    named: list[str] = field(default_factory=list[str])
    sections: dict[str, str] = field(default_factory=dict[str, str])
    """The section of each file, in the order of the request; "" for none."""
    read: list[str] = field(default_factory=list[str])
    errors: list[ToolError] = field(default_factory=list[ToolError])
    omitted: list[str] = field(default_factory=list[str])
    chars: int = PAGE_CHARS - _RESERVED
    tokens: int = PAGE_TOKENS - _RESERVED

    async def resolve(self, paths: Sequence[str], sandbox: Sandbox) -> None:
        """Finds the files that the paths and glob patterns name, each once."""
        for path in paths:
            try:
                found = await _resolve(self.files, sandbox, path)
            except ToolError as error:
                self._add_error(path, error)
            else:
                self.named += [each for each in found if each not in self.sections]
                self.sections |= dict.fromkeys(found, "")

    def add(self, most: int, stop: Event) -> None:
        """Reads the files that were found: small ones first, large ones share the rest.

        Args:
            most: The largest number of files.
            stop: Ends the reading.
        """
        wanted = sorted(self.named[:most], key=self._size)
        for at, path in enumerate(wanted):
            if stop.is_set():
                return
            self._add_file(path, sharing=len(wanted) - at)
        self.omitted += self.named[most:]

    @property
    def text(self) -> str:
        """The text for the model."""
        parts = [part for part in self.sections.values() if part]
        if self.omitted:
            names = clip(", ".join(map(one_line, self.omitted)), _RESERVED // 4)
            files = count(len(self.omitted), "file")
            parts.append(f"(Left out, because the output is limited: {files}: {names})")
        return "\n".join(parts)

    def _size(self, path: str) -> int:
        try:
            found = self.files.stat(path)
        except ToolError:
            return 0
        return found.size if found else 0

    def _add_file(self, path: str, sharing: int) -> None:
        """Adds one file within its share of the size that is left; ``sharing`` counts the files still to add."""
        try:
            section = _section(self.files, path, PageLimits(chars=self.chars // sharing, tokens=self.tokens // sharing))
        except ToolError as error:
            self._add_error(path, error)
        else:
            (self.read if self._add_section(path, section) else self.omitted).append(path)

    def _add_error(self, path: str, error: ToolError) -> None:
        self.errors.append(error)
        if not self._add_section(path, f"Error: {clip(error.message, 500)}"):
            self.omitted.append(path)

    def _add_section(self, path: str, section: str) -> bool:
        part = valid(f"==> {clip(one_line(path), 500)} <==\n{section}\n")
        tokens = tokens_at_most(part)
        if len(part) > self.chars or tokens > self.tokens:
            return False
        self.sections[path] = part
        self.chars -= len(part)
        self.tokens -= tokens
        return True


async def _resolve(files: Files, sandbox: Sandbox, path: str) -> list[str]:
    plain = files.relative(path)
    if not _WILD.search(path) or files.stat(plain) is not None:
        return [plain]
    names = plain.split("/")
    at = next(number for number, name in enumerate(names) if _WILD.search(name))
    top, skipped = "/".join(names[:at]) or ".", SkippedPaths()
    found = await find_files(files, sandbox, "/".join(names[at:]), top, skipped=skipped)
    if not found and skipped:
        message = f"No file that could be read matches {path!r}. {' '.join(skipped.sentences())}"
        raise ToolError(ErrorType.EXECUTION_FAILED, message)
    if not found:
        raise ToolError(ErrorType.FILE_NOT_FOUND, f"No file matches {path!r}. List the files with glob.")
    return found


def _section(files: Files, path: str, limits: PageLimits) -> str:
    found = files.stat(path)
    if found is None:
        raise file_not_found_error(files, path)
    if found.kind == "directory":
        raise ToolError(ErrorType.NOT_A_FILE, f"{path} is a directory. Use a pattern such as {path.rstrip('/')}/*.")
    content = read_lines(files, path, 1, limits.lines, limits.chars)
    if not content.lines:
        return format_remark_line(content, "The file is empty.")
    text, shown = format_page(content.lines, 1, limits)
    of = f"of {content.total}" if content.total else "of many more"
    cut = f"(Lines 1 to {shown} {of}; continue with read_file and offset={shown + 1}.)"
    is_cut = content.total is None or shown < content.total
    return "\n".join(part for part in (text, cut if is_cut else "", format_remark_line(content)) if part)
