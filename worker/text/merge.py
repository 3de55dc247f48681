"""Three-way merge of what a model quoted (base), what the file has (theirs), and what the model wants (mine).

Lines that the model leaves unchanged stay as they are in the file, the others are new. In a line that both changed,
both changes are applied if at least one unchanged token is between them; if the file has tokens more or less, one that
is not whitespace. If they touch, the model's line is used as it is, unless it would lose something that only the file
has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter

from rapidfuzz.distance import Indel

from .diff import compare
from .normalization import LOOK_ALIKES, NormalizedText

_TEXT = re.compile(r"[^ \t\r\n](?:[^\n]*[^ \t\r\n])?")
_MIN_LINE_SIMILARITY = 0.6
"""The least similarity of a new line to the old line that it is a changed version of."""
_MAX_PAIRS = 10_000
"""Pairs of old and new lines that are compared to find out which was changed into which."""
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
_TOKEN = re.compile(r"\w+|\n|[^\S\n]+|[^\w\s]")
_WORD = re.compile(r"\w")
_COMMENT = re.compile(r"//|#|--|/\*|<!--")
_MAX_LINE_CHARS = 10_000
"""The time of a comparison grows with the square of a line's length."""
_INVISIBLE = "\u200b\u2060\ufeff"


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line that is not blank. ``gap`` is everything between its text and the next such line's indentation."""

    indent: str
    text: str
    gap: str

    @property
    def whole(self) -> str:
        return self.indent + self.text

    @property
    def breaks(self) -> int:
        """The number of line ends that follow: 1 if no blank line follows, 0 at the end of the text."""
        return self.gap.count("\n")


def split_source(text: str) -> list[SourceLine]:
    """Splits a text into its non-blank lines. The first one is empty: its gap is everything before the others."""
    found = [(match.start(), match.end()) for match in _TEXT.finditer(text)]
    lines: list[SourceLine] = []
    indent = ""
    for (start, end), (following, _) in pairwise([(0, 0), *found, (len(text), len(text))]):
        cut = text.rfind("\n", end, following) + 1 or end
        if following == len(text):
            cut = following
        lines.append(SourceLine(indent, text[start:end], text[end:cut]))
        indent = text[cut:following]
    return lines


class Merge:
    """The lines that a model quoted, the matching lines of the file, one for one, and the new lines.

    All three have the file's indentation; ``style`` is the line end of new lines.
    """

    def __init__(
        self, old: Sequence[SourceLine], found: Sequence[SourceLine], new: Sequence[SourceLine], style: str
    ) -> None:
        self._old, self._found, self._new, self._style = old, found, new, style
        self._origins = _pair_lines(old, new)

    def text(self) -> str | None:
        """Returns the merged text, or None if it would lose or break text that only the file has.

        A line that the model left unchanged is the file's, with its line end and the blank lines after it. A changed
        line is the model's, with the file's differences in other parts of the line.
        """
        pairs = zip(self._old, self._found, strict=True)
        differing = {old.text for old, found in pairs if old.text != found.text}
        parts: list[str] = []
        for number, (line, origin) in enumerate(zip(self._new, self._origins, strict=True)):
            body = line.whole if origin is None else self._merged_line(number, origin)
            if body is None or (origin is None and line.text in differing):  # it was moved: the version is not certain
                return None
            parts += (body, self._gap(number, origin))
        text = "".join(parts)
        return text if self._is_balanced(text) and not self._is_typographic(text) else None

    def _merged_line(self, number: int, origin: int) -> str | None:
        old, found, new = self._old[origin], self._found[origin], self._new[number]
        indent = found.indent if new.indent == old.indent else new.indent
        if old.text == new.text and old.text != found.text and self._meets_neighbours(number, origin):
            text = None if loses_file_text(old.text, found.text, new.text) else new.text
        else:
            text = merge_line(old.text, found.text, new.text)
        return None if text is None else indent + text

    def _meets_neighbours(self, number: int, origin: int) -> bool:
        """Whether lines are inserted or removed beside the end at which the file's line differs.

        A separator at that end may depend on them.
        """
        is_last, was_last = number == len(self._new) - 1, origin == len(self._old) - 1
        follows = self._origins[number - 1] == origin - 1
        precedes = was_last if is_last else self._origins[number + 1] == origin + 1
        base = split_tokens(self._old[origin].text)
        places = changes(base, split_tokens(self._found[origin].text))
        at_start, at_end = (
            any(change.low == 0 for change in places),
            any(change.high == len(base) for change in places),
        )
        return (at_start and not follows) or (at_end and not precedes)

    def _gap(self, number: int, origin: int | None) -> str:
        """Returns the gap after a new line: the file's, if the model left it unchanged."""
        is_last = number == len(self._new) - 1
        same = origin is not None and self._old[origin].whole == self._new[number].whole
        origin = len(self._old) - 1 if is_last else origin
        mine = self._new[number].gap
        if origin is None or self._old[origin].breaks != self._new[number].breaks:
            return mine.replace("\n", self._style)
        theirs = self._found[origin].gap
        if mine and not is_last and "\n" not in theirs:
            return self._style  # it was the file's last line
        if same or mine == self._old[origin].gap:
            return theirs
        return mine[: len(mine) - len(mine.lstrip(" \t"))] + theirs.lstrip(" \t")

    def _is_typographic(self, text: str) -> bool:
        """Whether the text has typographic quotes, dashes or blanks where the file has plain ones."""
        found = _join(self._found)
        odd = set(_join(self._old)) - set(found)
        return any(not sign.isascii() and NormalizedText(sign, LOOK_ALIKES).text != sign for sign in odd & set(text))

    def _is_balanced(self, text: str) -> bool:
        """Whether the balance of brackets and quotes is that of the file, or changed as the model changed it."""
        if not text.strip() or all(old.text == found.text for old, found in zip(self._old, self._found, strict=True)):
            return True
        was, quoted, wanted = (bracket_balance(_join(lines)) for lines in (self._found, self._old, self._new))
        quotes = [(a + b + c) % 2 for a, b, c in zip(was[0], quoted[0], wanted[0], strict=True)]
        brackets = [a - b + c for a, b, c in zip(was[1], quoted[1], wanted[1], strict=True)]
        return bracket_balance(text) in (was, (quotes, brackets))


def _pair_lines(old: Sequence[SourceLine], new: Sequence[SourceLine]) -> list[int | None]:
    """Returns, for each new line, the index of its old line: an equal one, else one that differs in its indentation,
    else a similar one.
    """
    origins: list[int | None] = [None] * len(new)
    gaps = [(range(len(old)), range(len(new)))]
    for text_of in (attrgetter("whole"), attrgetter("text")):
        unpaired: list[tuple[range, range]] = []
        for theirs, mine in gaps:
            for block in compare([text_of(old[at]) for at in theirs], [text_of(new[at]) for at in mine]):
                pair = theirs[block.old.start : block.old.stop], mine[block.new.start : block.new.stop]
                if block.same:
                    origins[pair[1].start : pair[1].stop] = pair[0]
                else:
                    unpaired.append(pair)
        gaps = unpaired
    for theirs, mine in gaps:
        for at, number in _similar_pairs([old[at].text for at in theirs], [new[at].text for at in mine]):
            origins[mine[number]] = theirs[at]
    return origins


def _similar_pairs(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs changed lines in their order: one by one, or with the greatest sum of similarities."""

    def similarity(theirs: str, mine: str) -> float:
        return Indel.normalized_similarity(theirs, mine, score_cutoff=_MIN_LINE_SIMILARITY)

    if len(old) == len(new):
        return [(at, at) for at in range(len(old)) if similarity(old[at], new[at])]
    if len(old) * len(new) > _MAX_PAIRS:
        return []
    return _best_pairs([[similarity(theirs, mine) for mine in new] for theirs in old])


def _best_pairs(scores: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Returns the pairs of row and column, both ascending and of positive score, with the largest sum of scores."""
    width = len(scores[0]) if scores else 0
    best = [[0.0] * (width + 1) for _ in range(len(scores) + 1)]
    for row in reversed(range(len(scores))):
        for column in reversed(range(width)):
            paired = scores[row][column] + best[row + 1][column + 1] if scores[row][column] else 0.0
            best[row][column] = max(best[row + 1][column], best[row][column + 1], paired)
    pairs: list[tuple[int, int]] = []
    row = column = 0
    while row < len(scores) and column < width:
        if best[row][column] == best[row + 1][column]:
            row += 1
        elif best[row][column] == best[row][column + 1]:
            column += 1
        else:
            pairs.append((row, column))
            row, column = row + 1, column + 1
    return pairs


def _join(lines: Sequence[SourceLine]) -> str:
    return "\n".join(line.text for line in lines)


def bracket_balance(text: str) -> tuple[list[int], list[int]]:
    """Returns the parity of each kind of quote, and the number of unclosed brackets of each kind."""
    plain = _APOSTROPHE.sub("", text)
    quotes = [plain.count(sign) % 2 for sign in "\"'`"]
    return quotes, [plain.count(first) - plain.count(last) for first, last in ("()", "[]", "{}")]


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
    if max(map(len, (old, found, new))) > _MAX_LINE_CHARS:
        return None
    base, theirs, mine = map(split_tokens, (old, found, new))
    forwards = _apply_both(base, theirs, mine)
    if forwards is not None and forwards == _apply_both(base[::-1], theirs[::-1], mine[::-1], backwards=True):
        return forwards
    return None if loses_file_text(old, found, new) else new


def loses_file_text(old: str, found: str, new: str) -> bool:
    """Whether the file's line has tokens that neither the quoted nor the new line has in that place.

    A replaced word is not a loss: the model decides about it. Longer lines than any that is read count as one.
    """
    if max(map(len, (old, found, new))) > _MAX_LINE_CHARS:
        return True
    base, theirs, mine = map(split_tokens, (old, found, new))
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
            inserted.update(_visible(split_tokens(text[: comment.start()] if comment else text)))
            inserted.subtract(_visible(base[other.start : other.end]))
    return +inserted


def split_tokens(text: str) -> list[str]:
    """Splits a text into words, line ends, other whitespace, and single signs."""
    return _TOKEN.findall(text)


def changes(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """Returns the changes that turn the old tokens into the new ones."""
    found: list[Change] = []
    for block in compare(old, new):
        if block.same:
            continue
        start, end, tokens = block.old.start, block.old.stop, tuple(new[block.new.start : block.new.stop])
        low, high = start, end
        if start == end or not tokens:  # only an insertion or a deletion has equivalent positions
            movable = tokens or tuple(old[start:end])
            size = len(movable)
            while low and old[low - 1] == movable[(size - 1 - (start - low)) % size]:
                low -= 1
            while high < len(old) and old[high] == movable[(high - end) % size]:
                high += 1
        found.append(Change(start, end, tokens, low, high))
    return found


def _apply_both(
    base: Sequence[str], theirs: Sequence[str], mine: Sequence[str], *, backwards: bool = False
) -> str | None:
    """Applies the changes of both sides; returns None if they touch or insert the same token."""
    file_changes, model_changes = _file_changes(base, theirs), changes(base, mine)
    if _added_tokens(base, theirs) & _added_tokens(base, mine):
        return None
    for change in file_changes:
        quoted = base[change.start : change.end]
        is_spacing = bool(quoted) and bool(change.tokens) and not _visible([*quoted, *change.tokens])
        touches = change.overlaps if is_spacing else change.touches
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
    found: list[Change] = []
    for change in changes(base, theirs):
        low, high = change.low, change.high
        if not (_visible(base[change.start : change.end]) and _visible(change.tokens)):
            while low and base[low - 1].isspace():
                low -= 1
            while high < len(base) and base[high].isspace():
                high += 1
        found.append(replace(change, low=low, high=high))
    return found


def _added_tokens(old: Sequence[str], new: Sequence[str]) -> set[str]:
    """Returns the tokens that occur more often in the new line."""
    return set(Counter(_visible(new)) - Counter(_visible(old)))


def _added_by_file(base: Sequence[str], change: Change) -> Counter[str]:
    """Counts the tokens that only the file has, unless they are another wording of the quoted ones."""
    quoted, there = _visible(base[change.start : change.end]), _visible(change.tokens)
    if any(map(_WORD.match, quoted)):
        quoted, there = ([token for token in tokens if not _WORD.match(token)] for tokens in (quoted, there))
    return Counter(there) - Counter(quoted) if len(there) > len(quoted) else Counter()


def _visible(tokens: Sequence[str]) -> list[str]:
    return [token for token in tokens if token.strip() and token not in _INVISIBLE]
