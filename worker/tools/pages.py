"""Some lines of a text file, with line numbers, as many as fit into one tool output.

The file is read in chunks, so that neither a large file nor an endless line fills the memory.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import stat as modes
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from threading import Event

from ...shared.errors import ErrorType, ToolError
from ...shared.libc import closing_fd
from ...shared.text import HALF_CHARACTER, clip, count, valid
from ...shared.tokens import count as tokens_of
from ..contracts import FileAccess, Sandbox
from ..search.listing import find_files
from ..search.ripgrep import SkippedPaths
from ..text.encodings import NUL_SHOWN, Encoding, encoding_of, kind_of
from ..text.output import few_tokens, one_line
from ..text.textfile import format_remarks, not_text_error, number_lines
from ..threads import give_way
from ..workspace.file_entries import not_a_file, tool_error
from .missing_files import file_not_found_error

LINE_CHARS = 2000
"""Characters shown of each line."""
_NUMBER_CHARS = 8
"""Characters of a line's number, the bar and the line end."""
_PIECE = 256 * 1024
_COUNTED = 64 * 1024 * 1024
"""Bytes of a file after which the lines after the wanted ones are not counted."""
MOST_BYTES = 1024 * 1024 * 1024
"""Bytes of a file after which the search for the wanted lines ends."""
PAGE_LINES = 2000
PAGE_TOKENS = 31_500
PAGE_CHARS = 126_000
"""A page and the remarks below it stay within the output limit of the tools that read, so that a page always ends at
the end of a line."""


class FileLines:
    """Lines of a file from ``first`` on, each clipped: at most ``most``; no further piece after ``max_chars``.

    ``total`` is the number of all lines, None if the file is too large to count them.
    """

    def __init__(self, first: int, most: int, max_chars: int) -> None:
        self.first = first
        self.lines: list[str] = []
        self.total: int | None = 0
        self.remarks: list[str] = []
        self.is_ended = True
        """Whether the last line that was read has a line end."""
        self._most, self._chars_left = most, max_chars
        self._head, self._missing = "", 0
        """The start of the current line, and how many characters of it are not kept."""
        self._breaks = self._crlf = 0
        self._invalid = self._nul = False

    @property
    def is_full(self) -> bool:
        return len(self.lines) >= self._most or self._chars_left < 0

    def add(self, text: str) -> None:
        """Adds the next piece of the text. It must not end between CR and LF."""
        breaks, number = text.count("\n"), self._breaks + 1
        self._breaks += breaks
        self._crlf += text.count("\r\n")
        self._invalid = self._invalid or (not text.isascii() and HALF_CHARACTER.search(text) is not None)
        if "\0" in text:
            self._nul, text = True, text.replace("\0", NUL_SHOWN)
        if self.is_full or number + breaks < self.first:
            before = 0 if breaks else len(self._head) + self._missing
            self._head, self._missing = "", before + len(text) - text.rfind("\n") - 1
            return
        *lines, head = (self._head + text).split("\n")
        unwanted = max(0, self.first - number)
        missing = 0 if unwanted else self._missing
        wanted = lines[unwanted:][: self._most - len(self.lines)]
        if not (self._crlf or self._invalid) and max(map(len, wanted), default=0) <= LINE_CHARS:
            self.lines += wanted  # as nearly all files are
            self._chars_left -= sum(map(len, wanted)) + _NUMBER_CHARS * len(wanted)
            wanted = []
        for line in wanted:
            length = len(line) + missing - line.endswith("\r")
            shown = clip(valid(line[: min(length, LINE_CHARS + 1)]), LINE_CHARS, length)
            self.lines.append(shown)
            self._chars_left -= len(shown) + _NUMBER_CHARS
            missing = 0
        self._head = head[: LINE_CHARS + 1]
        self._missing = len(head) - len(self._head) + (0 if breaks else self._missing)

    def end(self, encoding: Encoding) -> None:
        """Ends the text, which had this encoding."""
        self.remarks = format_remarks(encoding, self._breaks, self._crlf, invalid=self._invalid, nul=self._nul)
        self.is_ended = not (self._head or self._missing)
        if not self.is_ended:
            self.add("\n")
        self.total = self._breaks


def read_lines(
    files: FileAccess, path: str, first: int, most: int, max_chars: int, max_bytes: int = MOST_BYTES
) -> FileLines:
    """Reads at most ``most`` lines of a text file from line ``first`` on, and none after ``max_chars`` characters.

    Raises ToolError: NOT_TEXT, NOT_A_FILE, or FILE_TOO_LARGE where the lines do not end within ``max_bytes``.
    """
    with closing_fd(files.open_fd(path)) as fd:
        try:
            found = os.fstat(fd)
            if not modes.S_ISREG(found.st_mode):
                raise not_a_file(path, found.st_mode)
            return _read(fd, path, found.st_size, FileLines(first, most, max_chars), max_bytes)
        except UnicodeDecodeError:
            raise not_text_error(path, "binary data", os.fstat(fd).st_size) from None
        except OSError as error:
            raise tool_error(path, error, files.mount) from None


def _read(fd: int, path: str, size: int, content: FileLines, max_bytes: int) -> FileLines:
    piece = os.read(fd, _PIECE)
    if (encoding := encoding_of(piece)) is None:
        raise not_text_error(path, kind_of(piece), size)
    decode = codecs.getincrementaldecoder(encoding.name)
    decoder = io.IncrementalNewlineDecoder(decode("surrogateescape"), translate=False)
    content.add(decoder.decode(piece[len(encoding.bom) :]))
    done = len(piece)
    while piece:
        if done > _COUNTED and content.is_full:
            content.total = None
            return content
        if done > max_bytes:
            raise ToolError(
                ErrorType.FILE_TOO_LARGE,
                f"File too large: line {content.first} of {path} is more than {max_bytes} bytes after its start. "
                "Search it with grep, or extract the part with bash (sed -n, tail -c).",
            )
        give_way()
        piece = os.read(fd, _PIECE)
        content.add(decoder.decode(piece, final=not piece))
        done += len(piece)
    content.end(encoding)
    return content


def format_page(
    lines: Sequence[str], first: int, chars: int = PAGE_CHARS, tokens: int = PAGE_TOKENS
) -> tuple[str, int]:
    """Returns as many lines as the limits allow, at least one, with numbers from ``first`` on, and their number."""
    sizes = list(accumulate(map(len, lines)))
    fitting = bisect_right(range(len(sizes)), chars, key=lambda at: sizes[at] + _NUMBER_CHARS * (at + 1))
    kept = lines[: max(1, fitting)]
    text = number_lines(kept, first)
    while len(kept) > 1 and not few_tokens(text, tokens) and (counted := tokens_of(text)) > tokens:
        kept = kept[: max(1, int(len(kept) * tokens / counted * 0.95))]
        text = number_lines(kept, first)
    return text, len(kept)


def format_remark_line(content: FileLines, *more: str) -> str:
    """Returns remarks about encoding, line ends and a missing last line end, in parentheses; "" for none."""
    sentences = [*more, *([f"The file has {', '.join(content.remarks)}."] if content.remarks else [])]
    if content.total and not content.is_ended:
        sentences.append("There is no line end after the last line.")
    return f"({' '.join(sentences)})" if sentences else ""


_RESERVED = 4000
"""Characters, and tokens, reserved for the names of omitted files."""
_WILD = re.compile(r"[*?\[{]")


@dataclass(slots=True)
class ManyFiles:
    """The requested files, their sections, and the size that is left. An error of one file does not stop the others."""

    files: FileAccess
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
            sharing = len(wanted) - at
            try:
                section = _section(self.files, path, self.chars // sharing, self.tokens // sharing)
            except ToolError as error:
                self._add_error(path, error)
            else:
                (self.read if self._add_section(path, section) else self.omitted).append(path)
        self.omitted += self.named[most:]

    @property
    def text(self) -> str:
        parts = [part for part in self.sections.values() if part]
        if self.omitted:
            names = clip(", ".join(map(one_line, self.omitted)), _RESERVED // 4)
            files = count(len(self.omitted), "file")
            parts.append(f"(Left out, because the output is limited: {files}: {names})")
        return "\n".join(parts)

    def _size(self, path: str) -> int:
        with suppress(ToolError):
            if found := self.files.stat(path):
                return found.size
        return 0

    def _add_error(self, path: str, error: ToolError) -> None:
        self.errors.append(error)
        if not self._add_section(path, f"Error: {clip(error.message, 500)}"):
            self.omitted.append(path)

    def _add_section(self, path: str, section: str) -> bool:
        part = valid(f"==> {clip(one_line(path), 500)} <==\n{section}\n")
        tokens = tokens_of(part)
        if len(part) > self.chars or tokens > self.tokens:
            return False
        self.sections[path] = part
        self.chars -= len(part)
        self.tokens -= tokens
        return True


async def _resolve(files: FileAccess, sandbox: Sandbox, path: str) -> list[str]:
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


def _section(files: FileAccess, path: str, chars: int, tokens: int) -> str:
    found = files.stat(path)
    if found is None:
        raise file_not_found_error(files, path)
    if found.kind == "directory":
        raise ToolError(ErrorType.NOT_A_FILE, f"{path} is a directory. Use a pattern such as {path.rstrip('/')}/*.")
    content = read_lines(files, path, 1, PAGE_LINES, chars)
    if not content.lines:
        return format_remark_line(content, "The file is empty.")
    text, shown = format_page(content.lines, 1, chars, tokens)
    of = f"of {content.total}" if content.total else "of many more"
    cut = f"(Lines 1 to {shown} {of}; continue with read_file and offset={shown + 1}.)"
    is_cut = content.total is None or shown < content.total
    return "\n".join(part for part in (text, cut if is_cut else "", format_remark_line(content)) if part)
