"""Text with unimportant differences folded away, and the way back to the places in the text as it was."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

_LOOK_ALIKES = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
        **dict.fromkeys("\u200b\u2060\ufeff", ""),
    }
)
_COMPATIBLE = ("", "<wide>", "<narrow>", "<compat>", "<font>", "<small>", "<vertical>", "<noBreak>")
"""Kinds of characters that NFKC replaces by others that say the same; a raised 2 does not say the same as a 2."""
_LOOKED_AT = (range(0xA0, 0xD800), range(0xF900, 0xFFF0), range(0x1D400, 0x1D800))
_BLANKS = r"\r\n|(?<![ \t])[ \t]++(?=\r?\n|\Z)"  # possessive, else long runs of blanks take for ever
_RUNS = r"(?<=[^ \t\r\n])(?: [ \t]++|\t[ \t]*+)(?=[^ \t\r\n])"


@dataclass(frozen=True, slots=True)
class Fold:
    """One way to see two texts as equal. Each match becomes other characters, or none, or stays as it is."""

    name: str
    pattern: re.Pattern[str]
    replacement: Callable[[str], str]


def _blank(found: str) -> str:
    return "\n" if found == "\r\n" else ""


def _look_alike(found: str) -> str:
    if found == "\r\n" or found.strip(" \t") == "":
        return _blank(found)
    composed = unicodedata.normalize("NFC", found)
    plain = composed.translate(_LOOK_ALIKES) if len(composed) == 1 else found
    return unicodedata.normalize("NFKC", plain) if plain in _ALIKE else plain


def _alike() -> str:
    """The characters that NFKC writes in a simpler way, and that are not blanks with something above them."""
    found: list[str] = []
    for character in (chr(code) for codes in _LOOKED_AT for code in codes):
        written = unicodedata.decomposition(character)
        kind = written.split(" ")[0] if written.startswith("<") else ""
        simple = unicodedata.normalize("NFKC", character)
        if written and kind in _COMPATIBLE and simple != character and not simple.startswith(" "):
            found.append(character)
    return "".join(found)


_ALIKE = frozenset(_alike())
LINE_ENDS = Fold("line ends", re.compile(r"\r\n"), _blank)
TRAILING_BLANKS = Fold("blanks at line ends", re.compile(_BLANKS), _blank)
LOOK_ALIKES = Fold(
    "characters that look alike (quotes, dashes, blanks, accents)",
    re.compile(
        rf"{_BLANKS}|[{''.join(map(chr, _LOOK_ALIKES))}]|[^\W\d_][\u0300-\u036f]+"
        rf"|[{re.escape(''.join(sorted(_ALIKE)))}]"
    ),
    _look_alike,
)
BLANK_RUNS = Fold("runs of blanks", re.compile(_RUNS), lambda found: " ")
"""Inside lines; at their ends they are ``TRAILING_BLANKS``."""


class Folded:
    """``text`` after folding; ``origin`` leads from a place in it to the place in the original."""

    def __init__(self, original: str, *folds: Fold) -> None:
        self._layers: list[_Layer] = []
        self.text = original
        for fold in folds:
            self._layers.append(_Layer(self.text, fold))
            self.text = self._layers[-1].text

    def origin(self, place: int) -> int:
        """What was folded away belongs to what follows it, so that an edit before it leaves it alone."""
        for layer in reversed(self._layers):
            place = layer.origin(place)
        return place

    def splits(self, place: int) -> bool:
        """Whether the place lies inside of what is one character in the original."""
        for layer in reversed(self._layers):
            if layer.splits(place):
                return True
            place = layer.origin(place)
        return False


class _Layer:
    def __init__(self, original: str, fold: Fold) -> None:
        parts: list[str] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._shrinks: list[int] = [0]
        end = 0
        for match in fold.pattern.finditer(original):
            folded = fold.replacement(match[0])
            parts += (original[end : match.start()], folded)
            end = match.end()
            if shrink := len(match[0]) - len(folded):
                self._starts.append(match.start() - self._shrinks[-1])
                self._ends.append(self._starts[-1] + len(folded))
                self._shrinks.append(self._shrinks[-1] + shrink)
        self.text = "".join([*parts, original[end:]])

    def origin(self, place: int) -> int:
        at = bisect_left(self._starts, place)
        if at and place < self._ends[at - 1]:
            return self._starts[at - 1] + self._shrinks[at - 1]
        return place + self._shrinks[at]

    def splits(self, place: int) -> bool:
        at = bisect_left(self._starts, place)
        return bool(at) and place < self._ends[at - 1]
