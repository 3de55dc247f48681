"""Text files: recognized, decoded and encoded without loss (encoding, byte order mark, line ends)."""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from operator import add

from ...shared.errors import ErrorType, ToolError
from ...shared.lazy import lazy
from ...shared.text import HALF_CHARACTER

_SAMPLE = 8192
_CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\r\f\x1b\b"))
"""Control characters that do not occur in text."""
_MIN_WIDE_CHARS = 4
"""Characters needed to recognize an encoding."""
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8", "a UTF-8 byte order mark"),
    (codecs.BOM_UTF32_LE, "utf-32-le", "UTF-32 encoding"),  # begins like that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be", "UTF-32 encoding"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16 encoding"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16 encoding"),
)
_MAGIC_NUMBERS = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"BM", "a BMP image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (or an Office, Java or EPUB file)"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"7z\xbc\xaf", "a 7-Zip archive"),
    (b"\x7fELF", "an ELF program or library"),
    (b"MZ", "a Windows program"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x00asm", "a WebAssembly module"),
    (b"ID3", "an MP3 sound"),
    (b"OggS", "an Ogg sound or film"),
)
_NUMBERED_BY_US = re.compile(r"(?=.{6,}?\|) *(\d+)\|")
_NUMBERED = re.compile(r"[ \t]*(\d+)(?:\||\t|→|: ?|-(?=\s))")


@dataclass(frozen=True)
class TextFile:
    """A decoded file. ``text`` has the file's own line ends; invalid bytes are surrogate escapes."""

    text: str
    bom: bytes = b""
    encoding: str = "utf-8"

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
        return self.bom + text.encode(self.encoding, "surrogateescape")


def decode(data: bytes, path: str) -> TextFile:
    """Decodes a file. Raises ToolError(NOT_TEXT), which names the kind of file, for binary data."""
    for bom, encoding, _ in BYTE_ORDER_MARKS:
        if data.startswith(bom):
            body = data[len(bom) :]
            try:
                return TextFile(body.decode(encoding, "surrogateescape"), bom, encoding)
            except UnicodeDecodeError:
                break
    if kind := binary_kind(data):
        raise not_text_error(path, kind, len(data))
    return TextFile(data.decode("utf-8", "surrogateescape"))


def not_text_error(path: str, kind: str, size: int) -> ToolError:
    """Returns the error for a file that is not text; ``size`` is in bytes."""
    return ToolError(
        ErrorType.NOT_TEXT,
        f"{path} is not a text file: it is {kind} ({size} bytes). Use bash with a program that understands it.",
    )


def binary_kind(data: bytes) -> str | None:
    """Returns the kind of binary data, or None for text. Magic numbers alone are not enough: text may begin with BM."""
    sample = data[:_SAMPLE]
    odd = len(sample) - len(sample.translate(None, _CONTROL_BYTES))
    if b"\x00" not in sample and odd <= len(sample) // 10 and _mostly_text(sample):
        return None
    known = next((kind for magic, kind in _MAGIC_NUMBERS if data.startswith(magic)), None)
    if known is None and data[:4] == b"RIFF":
        known = {b"WEBP": "a WebP image", b"WAVE": "a WAV sound"}.get(data[8:12])
    if known is None and data[4:8] == b"ftyp":
        known = "an MP4, HEIC or AVIF file"
    return known or _wide_kind(sample) or "binary data"


def _wide_kind(sample: bytes) -> str | None:
    """Recognizes UTF-16 and UTF-32 without a byte order mark; it is not decoded, because that would be a guess."""
    for encoding, width in (("utf-32-le", 4), ("utf-32-be", 4), ("utf-16-le", 2), ("utf-16-be", 2)):
        whole = sample[: len(sample) // width * width]
        text = whole.decode(encoding, "replace")
        ascii_part = sum(" " <= character <= "~" or character in "\t\r\n" for character in text)
        if len(text) >= _MIN_WIDE_CHARS and ascii_part >= len(text) * 0.8:
            name = encoding.upper()
            return f"probably text in {name} without a byte order mark; `iconv -f {name} -t UTF-8` makes it readable"
    return None


def _mostly_text(sample: bytes) -> bool:
    """Whether few bytes are invalid UTF-8: text in an 8-bit encoding has mostly ASCII characters."""
    if sample.isascii():
        return True
    broken = len(HALF_CHARACTER.findall(sample.decode("utf-8", "surrogateescape")))
    return broken <= max(4, len(sample) * 0.3)


def format_remarks(bom: bytes, breaks: int, crlf: int, *, invalid: bool) -> list[str]:
    """Returns remarks about a file's format.

    ``breaks`` is the number of all line ends; ``invalid``: there are bytes that are not valid UTF-8.
    """
    found = [remark for each, _, remark in BYTE_ORDER_MARKS if each == bom]
    if crlf:
        found.append("CRLF line ends" if crlf == breaks else "mixed line ends (LF and CRLF)")
    if invalid:
        found.append("bytes that are not valid UTF-8, shown as \ufffd")
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
