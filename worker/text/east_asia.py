"""Recognizes the encodings of East Asia by the share of common characters of their language."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

ENCODINGS = {
    "cp949": "EUC-KR",
    "gb18030": "GB18030",
    "cp932": "Shift_JIS",
    "euc_jp": "EUC-JP",
    "big5": "Big5",
}
"""Encodings of two bytes per character: Python's name and that of iconv and ripgrep, the more certain one first."""
_MIN_CHARS = 4
"""Characters needed to recognize an encoding."""
_LIKELY = 0.8
"""The share of characters of its language that makes an encoding likely."""


def likely_encoding(sample: bytes) -> tuple[str, str]:
    """Returns the names of the encoding in which most characters of a text are common; "" without one."""
    shares = {name: share for name in ENCODINGS for share in _common_share(sample, name)}
    best = max(shares, key=shares.__getitem__, default=None)  # the first one of equals
    return (best, ENCODINGS[best]) if best and shares[best] >= _LIKELY else ("", "")


def _common_share(sample: bytes, encoding: str) -> Iterator[float]:
    """Yields the share of common characters among those that are not ASCII; nothing if it is another encoding."""
    try:
        text = codecs.getincrementaldecoder(encoding)("strict").decode(sample)
    except UnicodeDecodeError:
        return
    foreign = [character for character in text if character > "\x7f"]
    if len(foreign) < _MIN_CHARS:
        return
    kana = sum("\u3041" <= character <= "\u30fe" for character in foreign)
    if encoding in ("cp932", "euc_jp") and kana * 10 < len(foreign):
        return  # a Japanese text has some
    yield sum(_is_common(character, encoding) for character in foreign) / len(foreign)


def _is_common(character: str, encoding: str) -> bool:
    if encoding == "cp949":
        return "\uac00" <= character <= "\ud7a3" or character in "\u3000\u3001\u3002"
    if "\u3000" <= character <= "\u3002" or "\u300c" <= character <= "\u300f" or "\uff01" <= character <= "\uff5e":
        return True
    if encoding == "gb18030":
        return _lead(character, "gb2312", 0xB0, 0xD7) or "\u2014" <= character <= "\u2026"
    if encoding == "big5":
        return _lead(character, "big5", 0xA4, 0xC6)
    return "\u3041" <= character <= "\u30fe" or _lead(character, "euc_jp", 0xB0, 0xCF)


def _lead(character: str, encoding: str, first: int, last: int) -> bool:
    """Whether a standard has the character among its common ones, which are those of the first rows."""
    encoded = character.encode(encoding, "replace")
    return len(encoded) == 2 and first <= encoded[0] <= last
