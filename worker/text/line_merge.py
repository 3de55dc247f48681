"""One line in three versions: as a model quoted it, as the file has it, and as the model wants it.

Both changes are made where they lie apart: at least one token that neither of them touches stands between them, and
where something was added or left out, one that is no blank. Where they meet, the model's line counts as it was written,
unless it would lose something that only the file has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from worker.text.diff import compared

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_COMMENT = re.compile(r"//|#|--|/\*|<!--")
_INVISIBLE = "\u200b\u2060\ufeff"


@dataclass(frozen=True, slots=True)
class Change:
    """The tokens from ``start`` to ``end`` of the quoted line become ``tokens``.

    ``low`` and ``high`` say how far the change reaches where it can be read in more than one way: "a b" becomes
    "a x b" by "x " before b or by " x" behind a.
    """

    start: int
    end: int
    tokens: tuple[str, ...]
    low: int
    high: int

    def meets(self, other: Change) -> bool:
        return self.low <= other.high and other.low <= self.high

    def overlaps(self, other: Change) -> bool:
        return (self.start < other.end and other.start < self.end) or self.start == other.start


def merged_line(old: str, found: str, new: str) -> str | None:
    """The line to write, or None where the new one would lose what only the file has and what meets the change."""
    if new == old:
        return found
    if new == found or found == old:
        return new
    base, theirs, mine = (_TOKEN.findall(text) for text in (old, found, new))
    forwards = _both(base, theirs, mine)
    if forwards is not None and forwards == _both(base[::-1], theirs[::-1], mine[::-1], backwards=True):
        return forwards
    return None if loses(old, found, new) else new


def loses(old: str, found: str, new: str) -> bool:
    """Whether the file's line has something more than the quoted one that the new line lacks in that place.

    Another word in the place of a word is no loss: the model decides about it.
    """
    base, theirs, mine = (_TOKEN.findall(text) for text in (old, found, new))
    of_model = changes(base, mine)
    return any(_added(base, change) - _brought(base, change, of_model) for change in _of_file(base, theirs))


def _brought(base: Sequence[str], change: Change, of_model: Sequence[Change]) -> Counter[str]:
    """What the model brings in where the file differs; behind a comment sign it is no replacement for code."""
    brought: Counter[str] = Counter()
    for other in of_model:
        if change.meets(other):
            text = "".join(other.tokens)
            comment = _COMMENT.search(text)
            brought.update(_filled(_TOKEN.findall(text[: comment.start()] if comment else text)))
            brought.subtract(_filled(base[other.start : other.end]))
    return +brought


def reaches_end(old: str, found: str) -> bool:
    """Whether the file's line differs from the quoted one at its end."""
    base = _TOKEN.findall(old)
    return any(change.high == len(base) for change in changes(base, _TOKEN.findall(found)))


def reaches_start(old: str, found: str) -> bool:
    """Whether the file's line differs from the quoted one at its start."""
    return any(change.low == 0 for change in changes(_TOKEN.findall(old), _TOKEN.findall(found)))


def changes(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """Which tokens, from and to, become what."""
    found: list[Change] = []
    for step in compared(old, new):
        if not step.same:
            tokens = tuple(new[step.new.start : step.new.stop])
            found.append(_reaching(old, step.old.start, step.old.stop, tokens))
    return found


def _reaching(old: Sequence[str], start: int, end: int, tokens: tuple[str, ...]) -> Change:
    low, high = start, end
    if (start == end) is not (not tokens):  # only what is inserted or deleted can stand elsewhere as well
        moving = tokens or tuple(old[start:end])
        size = len(moving)
        while low and old[low - 1] == moving[(size - 1 - (start - low)) % size]:
            low -= 1
        while high < len(old) and old[high] == moving[(high - end) % size]:
            high += 1
    return Change(start, end, tokens, low, high)


def _both(base: Sequence[str], theirs: Sequence[str], mine: Sequence[str], *, backwards: bool = False) -> str | None:
    """Both changes in one line, or None where they meet or bring in the same."""
    of_file, of_model = _of_file(base, theirs), changes(base, mine)
    if _brings(base, theirs) & _brings(base, mine):
        return None
    for change in of_file:
        meets = change.overlaps if _is_spacing(base, change) else change.meets
        if any(meets(other) for other in of_model):
            return None
    tokens: list[str] = []
    end = 0
    for change in sorted([*of_file, *of_model], key=lambda each: (each.start, each.end)):
        tokens += (*base[end : change.start], *change.tokens)
        end = change.end
    tokens += base[end:]
    return "".join(tokens[::-1] if backwards else tokens)


def _of_file(base: Sequence[str], theirs: Sequence[str]) -> list[Change]:
    """How the file differs; where something was added or left out, that reaches over the blanks beside it."""
    return [change if _replaces(base, change) else _wider(base, change) for change in changes(base, theirs)]


def _replaces(base: Sequence[str], change: Change) -> bool:
    return bool(_filled(base[change.start : change.end]) and _filled(change.tokens))


def _wider(base: Sequence[str], change: Change) -> Change:
    low, high = change.low, change.high
    while low and base[low - 1].isspace():
        low -= 1
    while high < len(base) and base[high].isspace():
        high += 1
    return replace(change, low=low, high=high)


def _brings(old: Sequence[str], new: Sequence[str]) -> set[str]:
    """The tokens of which the new line has more."""
    return set(Counter(_filled(new)) - Counter(_filled(old)))


def _added(base: Sequence[str], change: Change) -> Counter[str]:
    """What the file has more, as far as it cannot pass for another wording of what was quoted."""
    quoted = _filled(base[change.start : change.end])
    there = _filled(change.tokens)
    more = Counter(there) - Counter(quoted)
    if not quoted:
        return more
    if any(_is_word(token) for token in quoted):
        signs = {token: count for token, count in more.items() if not _is_word(token)}
        return Counter(signs if _grows(quoted, there) else {})
    return more if len(there) > len(quoted) else Counter()


def _grows(quoted: Sequence[str], there: Sequence[str]) -> bool:
    """Whether signs were added to words, and not only other words taken."""
    return sum(not _is_word(token) for token in there) > sum(not _is_word(token) for token in quoted)


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] == "_"


def _filled(tokens: Sequence[str]) -> list[str]:
    return [token for token in tokens if token.strip() and token not in _INVISIBLE]


def _is_spacing(base: Sequence[str], change: Change) -> bool:
    """Whether the file has only other blanks than those that were quoted."""
    quoted = base[change.start : change.end]
    return bool(quoted) and bool(change.tokens) and not _filled([*quoted, *change.tokens])
