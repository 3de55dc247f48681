"""Cuts of texts that say that they were made, and that split no character as people see it."""

from __future__ import annotations

import unicodedata


def clip(text: str, max_chars: int, length: int | None = None) -> str:
    """At most ``max_chars`` characters, the end of which says that and how much was cut.

    ``length`` is how long the whole is, where ``text`` is but the start of it.
    """
    length = len(text) if length is None else length
    if length <= max_chars:
        return text
    note = f"… [cut: {length} characters, {max_chars} allowed]"
    if len(note) > max_chars // 2:
        note = "…" if max_chars else ""
    return text[: safe_cut(text, max_chars - len(note))] + note


def safe_cut(text: str, at: int, *, forwards: bool = False) -> int:
    """The nearest place to cut that splits no character as people see it.

    Only 64 places are tried: an endless run of combining marks must not make the cut disappear.
    """
    at = max(0, min(at, len(text)))
    for step in range(64):
        place = at + step if forwards else at - step
        if not 0 < place < len(text):
            return max(0, min(place, len(text)))
        if not _joined(text[place - 1], text[place]):
            return place
    return at


def _joined(before: str, after: str) -> bool:
    """Whether two code points are one character: marks, joiners, surrogate pairs, skin tones and CR LF."""
    return (
        unicodedata.category(after)[0] == "M"
        or "\u200d" in (before, after)
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
        or ("\U0001f1e6" <= before <= "\U0001f1ff" and "\U0001f1e6" <= after <= "\U0001f1ff")
        or (before == "\r" and after == "\n")
    )
