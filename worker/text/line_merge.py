"""Three-way merge of one line: as a model quoted it (base), as the file has it (theirs), as the model wants it (mine).

Both changes are applied if at least one unchanged token is between them; if the file has tokens more or less, one that
is not whitespace. If they touch, the model's line is used as it is, unless it would lose something that only the file
has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .diff import compare

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_COMMENT = re.compile(r"//|#|--|/\*|<!--")
_INVISIBLE = "\u200b\u2060\ufeff"


@dataclass(frozen=True, slots=True)
class Change:
    """The tokens from ``start`` to ``end`` of the quoted line become ``tokens``.

    ``low`` and ``high`` are the range of equivalent positions: "a b" becomes "a x b" by "x " before b or by " x"
    after a.
    """

    start: int
    end: int
    tokens: tuple[str, ...]
    low: int
    high: int

    def touches(self, other: Change) -> bool:
        return self.low <= other.high and other.low <= self.high

    def overlaps(self, other: Change) -> bool:
        return (self.start < other.end and other.start < self.end) or self.start == other.start


def merge_line(old: str, found: str, new: str) -> str | None:
    """Returns the line to write; None if the new line would lose text of the file that touches the model's change."""
    if new == old:
        return found
    if new == found or found == old:
        return new
    base, theirs, mine = (_TOKEN.findall(text) for text in (old, found, new))
    forwards = _apply_both(base, theirs, mine)
    if forwards is not None and forwards == _apply_both(base[::-1], theirs[::-1], mine[::-1], backwards=True):
        return forwards
    return None if loses_file_text(old, found, new) else new


def loses_file_text(old: str, found: str, new: str) -> bool:
    """Whether the file's line has tokens that neither the quoted nor the new line has in that place.

    A replaced word is not a loss: the model decides about it.
    """
    base, theirs, mine = (_TOKEN.findall(text) for text in (old, found, new))
    model_changes = changes(base, mine)
    return any(
        _added_by_file(base, change) - _inserted_by_model(base, change, model_changes)
        for change in _file_changes(base, theirs)
    )


def _inserted_by_model(base: Sequence[str], change: Change, model_changes: Sequence[Change]) -> Counter[str]:
    """Counts the tokens that the model inserts where the file differs, without those inside a comment."""
    inserted: Counter[str] = Counter()
    for other in model_changes:
        if change.touches(other):
            text = "".join(other.tokens)
            comment = _COMMENT.search(text)
            inserted.update(_visible(_TOKEN.findall(text[: comment.start()] if comment else text)))
            inserted.subtract(_visible(base[other.start : other.end]))
    return +inserted


def reaches_end(old: str, found: str) -> bool:
    """Whether the file's line differs from the quoted one at its end."""
    base = _TOKEN.findall(old)
    return any(change.high == len(base) for change in changes(base, _TOKEN.findall(found)))


def reaches_start(old: str, found: str) -> bool:
    """Whether the file's line differs from the quoted one at its start."""
    return any(change.low == 0 for change in changes(_TOKEN.findall(old), _TOKEN.findall(found)))


def changes(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """Returns the changes that turn the old tokens into the new ones."""
    found: list[Change] = []
    for block in compare(old, new):
        if not block.same:
            tokens = tuple(new[block.new.start : block.new.stop])
            found.append(_change_with_range(old, block.old.start, block.old.stop, tokens))
    return found


def _change_with_range(old: Sequence[str], start: int, end: int, tokens: tuple[str, ...]) -> Change:
    low, high = start, end
    if (start == end) is not (not tokens):  # only an insertion or a deletion has equivalent positions
        movable = tokens or tuple(old[start:end])
        size = len(movable)
        while low and old[low - 1] == movable[(size - 1 - (start - low)) % size]:
            low -= 1
        while high < len(old) and old[high] == movable[(high - end) % size]:
            high += 1
    return Change(start, end, tokens, low, high)


def _apply_both(
    base: Sequence[str], theirs: Sequence[str], mine: Sequence[str], *, backwards: bool = False
) -> str | None:
    """Applies the changes of both sides; returns None if they touch or insert the same token."""
    file_changes, model_changes = _file_changes(base, theirs), changes(base, mine)
    if _added_tokens(base, theirs) & _added_tokens(base, mine):
        return None
    for change in file_changes:
        touches = change.overlaps if _is_spacing(base, change) else change.touches
        if any(touches(other) for other in model_changes):
            return None
    tokens: list[str] = []
    end = 0
    for change in sorted([*file_changes, *model_changes], key=lambda each: (each.start, each.end)):
        tokens += (*base[end : change.start], *change.tokens)
        end = change.end
    tokens += base[end:]
    return "".join(tokens[::-1] if backwards else tokens)


def _file_changes(base: Sequence[str], theirs: Sequence[str]) -> list[Change]:
    """Returns the file's changes; insertions and deletions include the whitespace beside them in their range."""
    return [change if _replaces(base, change) else _widen(base, change) for change in changes(base, theirs)]


def _replaces(base: Sequence[str], change: Change) -> bool:
    return bool(_visible(base[change.start : change.end]) and _visible(change.tokens))


def _widen(base: Sequence[str], change: Change) -> Change:
    low, high = change.low, change.high
    while low and base[low - 1].isspace():
        low -= 1
    while high < len(base) and base[high].isspace():
        high += 1
    return replace(change, low=low, high=high)


def _added_tokens(old: Sequence[str], new: Sequence[str]) -> set[str]:
    """Returns the tokens that occur more often in the new line."""
    return set(Counter(_visible(new)) - Counter(_visible(old)))


def _added_by_file(base: Sequence[str], change: Change) -> Counter[str]:
    """Counts the tokens that only the file has, unless they are another wording of the quoted ones."""
    quoted = _visible(base[change.start : change.end])
    there = _visible(change.tokens)
    more = Counter(there) - Counter(quoted)
    if not quoted:
        return more
    if any(_is_word(token) for token in quoted):
        signs = {token: count for token, count in more.items() if not _is_word(token)}
        return Counter(signs if _adds_signs(quoted, there) else {})
    return more if len(there) > len(quoted) else Counter()


def _adds_signs(quoted: Sequence[str], there: Sequence[str]) -> bool:
    """Whether the file has more signs, and not only other words."""
    return sum(not _is_word(token) for token in there) > sum(not _is_word(token) for token in quoted)


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] == "_"


def _visible(tokens: Sequence[str]) -> list[str]:
    return [token for token in tokens if token.strip() and token not in _INVISIBLE]


def _is_spacing(base: Sequence[str], change: Change) -> bool:
    """Whether the change replaces whitespace by other whitespace."""
    quoted = base[change.start : change.end]
    return bool(quoted) and bool(change.tokens) and not _visible([*quoted, *change.tokens])
