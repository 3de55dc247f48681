"""Bytes of the web as text. Whatever the server claims, there is a text at the end."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_SAID_INSIDE = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]+)|^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]+)""",
    re.IGNORECASE,
)
_LOOKED_AT = 4096
_MEANT = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "utf-16": "utf-16-le",
}
"""What browsers read where a page says this."""
_KNOWN = re.compile(
    r"utf-8|utf-16-[lb]e|iso8859-\d+|cp(125\d|866|874|932|949)|koi8-[ru]|mac-(roman|cyrillic)|"
    r"gb18030|big5|big5hkscs|euc_jp|iso2022_jp"
)
"""Encodings of pages. Python's other codecs are no encodings, or make of a few bytes whatever the server likes."""


def decoded(body: bytes, declared: str | None, *, markup: bool = False, cut: bool = False) -> str:
    """The text: by its byte order mark, what the header declares, what markup says inside, or UTF-8; and where it
    is none of them, by the first that was named, with U+FFFD for what does not fit.

    ``cut``: the last character may be half.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return codecs.getincrementaldecoder(name)("replace").decode(body[len(mark) :], not cut)
    names = list(_named(body, declared, markup=markup))
    for name in (*names, "utf-8"):
        try:
            return codecs.getincrementaldecoder(name)().decode(body, not cut)
        except UnicodeDecodeError:
            continue
    return body.decode(names[0] if names else "cp1252", "replace")


def is_utf8(body: bytes, *, cut: bool) -> bool:
    """Whether the bytes are text beyond doubt: valid UTF-8, or marked as UTF-16, and without NUL."""
    try:
        marked = body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return marked or "\0" not in codecs.getincrementaldecoder("utf-8")().decode(body, not cut)
    except UnicodeDecodeError:
        return False


def _named(body: bytes, declared: str | None, *, markup: bool) -> Iterator[str]:
    if declared and (name := _codec(declared)):
        yield name
    if markup and (found := _SAID_INSIDE.search(body[:_LOOKED_AT])):
        name = _codec((found[1] or found[2]).decode("ascii", "replace"))
        if name and not name.startswith("utf-16"):  # a page that says so in single bytes is none
            yield name


def _codec(label: str) -> str | None:
    try:
        name = codecs.lookup(label.strip().strip("\"'")).name
    except (LookupError, ValueError):
        return None
    name = _MEANT.get(name, name)
    return name if _KNOWN.fullmatch(name) else None
