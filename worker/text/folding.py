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
_BLANKS = r"\r\n|(?<![ \t])[ \t]++(?=\r?\n|\Z)"  # possessive, else long runs of blanks take for ever


@dataclass(frozen=True, slots=True)
class Fold:
    """One way to see two texts as equal. Each match becomes one character, or none, or stays as it is."""

    name: str
    pattern: re.Pattern[str]
    replacement: Callable[[str], str]


def _blank(found: str) -> str:
    return "\n" if found == "\r\n" else ""


def _look_alike(found: str) -> str:
    if found == "\r\n" or found.strip(" \t") == "":
        return _blank(found)
    single = unicodedata.normalize("NFC", found)
    return (single if len(single) == 1 else found).translate(_LOOK_ALIKES)


LINE_ENDS = Fold("line ends", re.compile(r"\r\n"), _blank)
TRAILING_BLANKS = Fold("blanks at line ends", re.compile(_BLANKS), _blank)
LOOK_ALIKES = Fold(
    "characters that look alike (quotes, dashes, blanks, accents)",
    re.compile(rf"{_BLANKS}|[{''.join(map(chr, _LOOK_ALIKES))}]|[^\W\d_][\u0300-\u036f]+"),
    _look_alike,
)


class Folded:
    """``text`` after folding; ``origin`` leads from a place in it to the place in the original."""

    def __init__(self, original: str, fold: Fold) -> None:
        parts: list[str] = []
        self._starts: list[int] = []
        self._shrinks: list[int] = [0]
        end = 0
        for match in fold.pattern.finditer(original):
            folded = fold.replacement(match[0])
            parts += (original[end : match.start()], folded)
            end = match.end()
            if shrink := len(match[0]) - len(folded):
                self._starts.append(match.start() - self._shrinks[-1])
                self._shrinks.append(self._shrinks[-1] + shrink)
        self.text = "".join([*parts, original[end:]])

    def origin(self, place: int) -> int:
        """What was folded away belongs to what follows it, so that an edit before it leaves it alone."""
        return place + self._shrinks[bisect_left(self._starts, place)]
