"""How the bytes of a file are read as text: by their byte order mark, by their form, or not at all."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from ...shared.text import HALF_CHARACTER

NUL_SHOWN = "\u2400"
"""The sign that stands for a NUL character where text is shown."""
_SAMPLE = 8192
_CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\r\f\x1b\b"))
"""Control characters that do not occur in text, except NULs in a few places."""
_NULS = re.compile(rb"\0+")
_MIN_CHARS = 4
"""Characters needed to recognize an encoding."""
_LIKELY = 0.8
"""The share of characters of its language that makes an encoding likely."""


class Encoding(NamedTuple):
    """An encoding with the byte order mark that a file begins with, and a remark for people; "" for plain UTF-8."""

    bom: bytes
    name: str
    remark: str
    known: str = "utf-8"
    """Its name for iconv and ripgrep."""


PLAIN = Encoding(b"", "utf-8", "")
MARKED = (
    Encoding(codecs.BOM_UTF8, "utf-8", "a UTF-8 byte order mark"),
    Encoding(codecs.BOM_UTF32_LE, "utf-32-le", "UTF-32 encoding"),  # begins like that of UTF-16
    Encoding(codecs.BOM_UTF32_BE, "utf-32-be", "UTF-32 encoding"),
    Encoding(codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16 encoding"),
    Encoding(codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16 encoding"),
)
_WIDE = (("utf-32-le", 4), ("utf-32-be", 4), ("utf-16-le", 2), ("utf-16-be", 2))
_MAGIC_NUMBERS = (
    (0, b"\x89PNG", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"BM", "a BMP image"),
    (0, b"%PDF-", "a PDF document"),
    (0, b"PK\x03\x04", "a ZIP archive (or an Office, Java or EPUB file)"),
    (0, b"PK\x05\x06", "an empty ZIP archive"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"BZh", "a bzip2 archive"),
    (0, b"\xfd7zXZ", "an xz archive"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (0, b"7z\xbc\xaf", "a 7-Zip archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x7fELF", "an ELF program or library"),
    (0, b"MZ", "a Windows program"),
    (0, b"SQLite format 3\x00", "an SQLite database"),
    (0, b"\x00asm", "a WebAssembly module"),
    (0, b"ID3", "an MP3 sound"),
    (0, b"OggS", "an Ogg sound or film"),
    (8, b"WEBP", "a WebP image"),
    (8, b"WAVE", "a WAV sound"),
    (4, b"ftyp", "an MP4, HEIC or AVIF file"),
)


def encoding_of(data: bytes) -> Encoding | None:
    """Returns how data, or the beginning of it, is read as text; None for binary data.

    A few NULs are part of a text. Without a mark, an encoding other than UTF-8 counts only where it is likely.
    """
    if marked := next((each for each in MARKED if data.startswith(each.bom)), None):
        return marked
    sample = data[:_SAMPLE]
    if b"\0" not in sample and _is_text(sample):
        return PLAIN
    if _known_kind(data, least=4):  # with a shorter magic number, as BM is, text may begin, too
        return None
    if wide := _wide(sample):
        remark = f"probably {wide.upper()} encoding, without a byte order mark"
        return Encoding(b"", wide, remark, wide.replace("16-", "16"))
    if _is_text_with_nuls(sample):
        return PLAIN
    return _of_east_asia(sample)


def kind_of(data: bytes) -> str:
    """Returns what binary data, or the beginning of it, is."""
    return _known_kind(data) or "binary data"


def other_encoding(data: bytes) -> str | None:
    """Returns the likely encoding of a text as iconv and ripgrep name it; None for UTF-8, its like and binary data."""
    found = encoding_of(data)
    return None if found is None or found.known == "utf-8" else found.known


def _known_kind(data: bytes, least: int = 0) -> str | None:
    return next((kind for at, sign, kind in _MAGIC_NUMBERS if len(sign) >= least and data.startswith(sign, at)), None)


def controls_in(data: bytes) -> int:
    """Returns how many control characters data has that do not occur in text."""
    return len(data) - len(data.translate(None, _CONTROL_BYTES))


def _is_text(sample: bytes) -> bool:
    """Whether few bytes are controls or invalid UTF-8: text in an 8-bit encoding has mostly ASCII characters."""
    if controls_in(sample) > len(sample) // 10:
        return False
    if sample.isascii():
        return True
    broken = len(HALF_CHARACTER.findall(sample.decode("utf-8", "surrogateescape")))
    return broken <= max(4, len(sample) * 0.3)


def _is_text_with_nuls(sample: bytes) -> bool:
    """Whether NULs in a few places are all that is odd in a text; binary data has other controls, too."""
    plain = sample.replace(b"\0", b"")
    places = len(_NULS.findall(sample))
    return places <= max(1, len(sample) // 5) and controls_in(plain) <= len(plain) // 100 and _is_text(plain)


def _wide(sample: bytes) -> str | None:
    """Recognizes UTF-16 and UTF-32 without a byte order mark by their ASCII characters."""
    for encoding, width in _WIDE:
        text = sample[: len(sample) // width * width].decode(encoding, "replace")
        ascii_part = sum(" " <= character <= "~" or character in "\t\r\n" for character in text)
        if len(text) >= _MIN_CHARS and ascii_part >= len(text) * _LIKELY:
            return encoding
    return None


def _of_east_asia(sample: bytes) -> Encoding | None:
    if controls_in(sample):
        return None
    from .east_asia import likely_encoding  # few files need it

    name, known = likely_encoding(sample)
    return Encoding(b"", name, f"probably {known} encoding", known) if name else None
