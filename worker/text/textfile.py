"""Text files: recognized, decoded and encoded without loss (encoding, byte order mark, line ends)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from operator import add

from ...shared.errors import ErrorType, ToolError
from ...shared.lazy import lazy
from ...shared.text import HALF_CHARACTER
from .encodings import NUL_SHOWN, PLAIN, Encoding, encoding_of, kind_of

_NUMBERED_BY_US = re.compile(r"(?=.{6,}?\|) *(\d+)\|")
_NUMBERED = re.compile(r"[ \t]*(\d+)(?:\||\t|→|: ?|-(?=\s))")


@dataclass(frozen=True)
class TextFile:
    """A decoded file. ``text`` has the file's own line ends; invalid bytes are surrogate escapes."""

    text: str
    encoding: Encoding = PLAIN

    @lazy
    def newline(self) -> str:
        """The line end of most lines."""
        crlf = self.text.count("\r\n")
        return "\r\n" if crlf > self.text.count("\n") - crlf else "\n"

    @lazy
    def readable(self) -> str:
        """The text with U+FFFD for every invalid byte."""
        return HALF_CHARACTER.sub("\ufffd", self.text)

    def to_bytes(self, text: str) -> bytes:
        """Returns ``text`` in this file's encoding, with its byte order mark."""
        try:
            return self.encoding.bom + text.encode(self.encoding.name, "surrogateescape")
        except UnicodeEncodeError as error:
            missing = text[error.start : error.start + 1]
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS,
                f"The file has {self.encoding.remark}, which has no character {missing!r}. Nothing was changed. Use "
                "other characters, or convert the file to UTF-8 with iconv first.",
            ) from None


def decode(data: bytes, path: str) -> TextFile:
    """Decodes a file. Raises ToolError(NOT_TEXT), which names the kind of file, for binary data."""
    if encoding := encoding_of(data):
        with suppress(UnicodeDecodeError):
            file = TextFile(data[len(encoding.bom) :].decode(encoding.name, "surrogateescape"), encoding)
            if encoding.name == "utf-8" or encoding.bom or file.to_bytes(file.text) == data:
                return file
    raise not_text_error(path, kind_of(data), len(data))


def not_text_error(path: str, kind: str, size: int) -> ToolError:
    """Returns the error for a file that is not text; ``size`` is in bytes."""
    return ToolError(
        ErrorType.NOT_TEXT,
        f"{path} is not a text file: it is {kind} ({size} bytes). Use bash with a program that understands it.",
    )


def format_remarks(encoding: Encoding, breaks: int, crlf: int, *, invalid: bool, nul: bool = False) -> list[str]:
    """Returns remarks about a file's format.

    ``breaks`` is the number of all line ends; ``invalid``: there are bytes that are not valid in its encoding.
    """
    found = [encoding.remark] if encoding.remark else []
    if crlf:
        found.append("CRLF line ends" if crlf == breaks else "mixed line ends (LF and CRLF)")
    if invalid:
        found.append("bytes that are not valid UTF-8, shown as \ufffd")
    if nul:
        found.append(f"NUL characters, shown as {NUL_SHOWN}")
    return found


def fingerprint(data: bytes) -> str:
    """Returns the SHA-256 of a file's content as hexadecimal digits."""
    return sha256(data).hexdigest()


_NUMBERS = [f"{number:6}|" for number in range(2001)]
"""What precedes the lines of a page: made once, because that takes longer than to join them."""


def number_lines(lines: Iterable[str], first: int = 1) -> str:
    """Joins lines, each with its number in front, as ``read_file`` shows them."""
    beyond = (f"{number:6}|" for number in itertools.count(max(first, len(_NUMBERS))))
    return "\n".join(map(add, itertools.chain(_NUMBERS[first:], beyond), lines))


def strip_line_numbers(text: str, *, only_ours: bool = False) -> str | None:
    """Removes the numbers in front of lines; returns None unless all lines have consecutive numbers.

    ``only_ours`` accepts only the format of ``number_lines``, for texts whose lines may begin with numbers.
    """
    form = _NUMBERED_BY_US if only_ours else _NUMBERED
    lines = text.split("\n")
    end = [lines.pop()] if len(lines) > 1 and not lines[-1] else []
    found = [form.match(line) for line in lines]
    numbers = [int(match[1]) for match in found if match]
    if len(numbers) < len(lines) or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return None
    return "\n".join([line[match.end() :] for line, match in zip(lines, found, strict=True) if match] + end)
