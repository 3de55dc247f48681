r"""The text of ``$'…'``, in which the shell replaces ``\x41`` and the like."""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9a-fA-F]{1,2})|u(?P<u>[0-9a-fA-F]{1,4})|U(?P<U>[0-9a-fA-F]{1,8})"
    r"|c(?P<control>.)|(?P<char>.))",
    re.DOTALL,
)
_CHARS = {"n": "\n", "t": "\t", "a": "\a", "b": "\b", "e": "\33", "E": "\33", "f": "\f", "r": "\r", "v": "\v"}


def decoded(text: str, unknown: str) -> str:
    """Returns the text as the shell passes it, ``unknown`` for each control character; it ends at a NUL."""
    result: list[str] = []
    at = 0
    for found in _ESCAPE.finditer(text):
        result.append(text[at : found.start()])
        at = found.end()
        char = _char(found)
        if char == "\0":
            return "".join(result)
        result.append(char if char.isprintable() or char in "\t\n" else unknown)
    return "".join(result) + text[at:]


def _char(found: re.Match[str]) -> str:
    if found["octal"]:
        return chr(int(found["octal"], 8) & 0xFF)
    digits = found["hex"] or found["u"] or found["U"]
    if digits:
        code = int(digits, 16)
        return chr(code) if code <= 0x10FFFF else "\x01"
    if found["control"]:
        return chr(ord(found["control"]) & 0x1F) if found["control"] != "@" else "\0"
    char = found["char"]
    return _CHARS.get(char, char if char in "\\'\"?" else f"\\{char}")
