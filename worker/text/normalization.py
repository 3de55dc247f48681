"""Normalization of text (line ends, whitespace, look-alike characters), with a map back to the original offsets."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

_LOOK_ALIKES = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
        **dict.fromkeys("\u200b\u2060\ufeff", ""),
    }
)
_COMPATIBILITY_TAGS = ("", "<wide>", "<narrow>", "<compat>", "<font>", "<small>", "<vertical>", "<noBreak>")
"""Decomposition tags of characters that mean the same as their NFKC form; a superscript 2 does not mean 2."""
_CODE_POINTS = (range(0xA0, 0xD800), range(0xF900, 0xFFF0), range(0x1D400, 0x1D800))
_BLANKS = r"\r\n|(?<![ \t])[ \t]++(?=\r?\n|\Z)"  # possessive: otherwise long runs of blanks take quadratic time
_RUNS = r"(?<=[^ \t\r\n])(?: [ \t]++|\t[ \t]*+)(?=[^ \t\r\n])"


@dataclass(frozen=True, slots=True)
class Normalization:
    """One kind of difference to ignore: how each match of the pattern is replaced."""

    name: str
    pattern: Callable[[], re.Pattern[str]]
    """Compiled when it is first needed, because a worker's start would wait for it."""
    replacement: Callable[[str], str]


def _replace_blanks(found: str) -> str:
    return "\n" if found == "\r\n" else ""


def _replace_look_alike(found: str) -> str:
    if found == "\r\n" or found.strip(" \t") == "":
        return _replace_blanks(found)
    composed = unicodedata.normalize("NFC", found)
    plain = composed.translate(_LOOK_ALIKES) if len(composed) == 1 else found
    return unicodedata.normalize("NFKC", plain) if plain in _compatibility_characters() else plain


@cache
def _compatibility_characters() -> frozenset[str]:
    """Returns the characters with a simpler NFKC form of the same meaning, except combining marks on a blank."""
    found: list[str] = []
    for character in (chr(code) for codes in _CODE_POINTS for code in codes):
        written = unicodedata.decomposition(character)
        kind = written.split(" ")[0] if written.startswith("<") else ""
        simple = unicodedata.normalize("NFKC", character)
        if written and kind in _COMPATIBILITY_TAGS and simple != character and not simple.startswith(" "):
            found.append(character)
    return frozenset(found)


@cache
def _look_alikes() -> re.Pattern[str]:
    """Returns a pattern that is fast on ordinary text.

    A class with characters above U+FFFF is searched from its begin for every character, which takes 3 µs. So those have
    a class of their own behind a test for their range, and all alternatives are behind one for visible ASCII.
    """
    simple = sorted(_compatibility_characters())
    low = re.escape("".join([character for character in simple if character <= "\uffff"]))
    high = re.escape("".join([character for character in simple if character > "\uffff"]))
    return re.compile(
        rf"(?![!-~](?![\u0300-\u036f]))(?:{_BLANKS}|[{''.join(map(chr, _LOOK_ALIKES))}]|[^\W\d_][\u0300-\u036f]+"
        rf"|[{low}]|(?=[\U00010000-\U0010ffff])[{high}])"
    )


LINE_ENDS = Normalization("line ends", partial(re.compile, r"\r\n"), _replace_blanks)
TRAILING_BLANKS = Normalization("blanks at line ends", partial(re.compile, _BLANKS), _replace_blanks)
LOOK_ALIKES = Normalization(
    "characters that look alike (quotes, dashes, blanks, accents)", _look_alikes, _replace_look_alike
)
BLANK_RUNS = Normalization("runs of blanks", partial(re.compile, _RUNS), lambda found: " ")
"""Inside lines; ``TRAILING_BLANKS`` are those at their ends."""


class NormalizedText:
    """A text after normalization, in ``text``, with a map from its offsets to those of the original."""

    def __init__(self, original: str, *normalizations: Normalization) -> None:
        self._layers: list[_Layer] = []
        self.text = original
        for normalization in normalizations:
            self._layers.append(_Layer(self.text, normalization))
            self.text = self._layers[-1].text

    def original_offset(self, offset: int) -> int:
        """Returns the offset in the original text.

        Removed characters belong to the text after them, so that an edit before them does not change them.
        """
        for layer in reversed(self._layers):
            offset = layer.original_offset(offset)
        return offset

    def splits(self, offset: int) -> bool:
        """Whether the offset is inside the replacement of one character of the original."""
        for layer in reversed(self._layers):
            if layer.splits(offset):
                return True
            offset = layer.original_offset(offset)
        return False


class _Layer:
    def __init__(self, original: str, normalization: Normalization) -> None:
        parts: list[str] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._shrinks: list[int] = [0]
        end = 0
        for match in normalization.pattern().finditer(original):
            normalized = normalization.replacement(match[0])
            parts += (original[end : match.start()], normalized)
            end = match.end()
            if shrink := len(match[0]) - len(normalized):
                self._starts.append(match.start() - self._shrinks[-1])
                self._ends.append(self._starts[-1] + len(normalized))
                self._shrinks.append(self._shrinks[-1] + shrink)
        self.text = "".join([*parts, original[end:]])

    def original_offset(self, offset: int) -> int:
        at = bisect_left(self._starts, offset)
        if at and offset < self._ends[at - 1]:
            return self._starts[at - 1] + self._shrinks[at - 1]
        return offset + self._shrinks[at]

    def splits(self, offset: int) -> bool:
        at = bisect_left(self._starts, offset)
        return bool(at) and offset < self._ends[at - 1]
