"""Three texts made one, line by line: what a model leaves as it was stays as the file has it, the rest is new."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rapidfuzz.distance import Indel

from worker.text.diff import compared
from worker.text.folding import LOOK_ALIKES, Folded
from worker.text.line_merge import loses, merged_line, reaches_end, reaches_start

_TEXT = re.compile(r"[^ \t\r\n](?:[^\n]*[^ \t\r\n])?")
_SAME_LINE = 0.6
"""From here on a new line is an old one that was changed."""
_MAX_PAIRS = 10_000
"""Lines compared, old ones times new ones, to find out which was changed into which."""
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not blank. ``gap`` is what stands between its text and the next such line's indentation."""

    indent: str
    text: str
    gap: str

    @property
    def whole(self) -> str:
        return self.indent + self.text

    @property
    def breaks(self) -> int:
        """Line ends that follow: 1 where the next line comes at once, 0 where all ends here."""
        return self.gap.count("\n")


def lines_of(text: str) -> list[Line]:
    """The lines that are not blank. The first one is empty: its gap is what stands before the others."""
    found = [(match.start(), match.end()) for match in _TEXT.finditer(text)]
    lines: list[Line] = []
    indent = ""
    for (start, end), (following, _) in pairwise([(0, 0), *found, (len(text), len(text))]):
        cut = text.rfind("\n", end, following) + 1 or end
        if following == len(text):
            cut = following
        lines.append(Line(indent, text[start:end], text[end:cut]))
        indent = text[cut:following]
    return lines


@dataclass(frozen=True, slots=True)
class Merge:
    """Old lines that a model quoted, the lines of a file that it meant, one for one, and what it wants instead.

    All three are indented as the file is; ``style`` is the line end of new lines.
    """

    old: Sequence[Line]
    found: Sequence[Line]
    new: Sequence[Line]
    style: str

    def text(self) -> str | None:
        """The new text, or None where it would lose or break what only the file has.

        Each line is the file's where the new text leaves it as it was, with its line end and the blank lines below;
        else it is the new one, with what the file has otherwise in other places of the line.
        """
        earlier = self._earlier()
        pairs = zip(self.old, self.found, strict=True)
        otherwise = {old.text for old, found in pairs if old.text != found.text}
        parts: list[str] = []
        for number, at in enumerate(earlier):
            line = self.new[number]
            body = line.whole if at is None else self._kept(number, at, earlier)
            if body is None or (at is None and line.text in otherwise):  # moved, and nobody knows in which version
                return None
            parts += (body, self._gap(number, at))
        text = "".join(parts)
        return text if self._is_balanced(text) and not self._is_typographic(text) else None

    def _earlier(self) -> list[int | None]:
        """Which old line each new one was: the same, the same but for its indentation, or one that is much alike."""
        earlier: list[int | None] = [None] * len(self.new)
        for old, new in _unequal(range(len(self.old)), range(len(self.new)), self._wholes, earlier):
            for left, right in _unequal(old, new, self._texts, earlier):
                self._pair(left, right, earlier)
        return earlier

    def _wholes(self, old: range, new: range) -> tuple[list[str], list[str]]:
        return [self.old[at].whole for at in old], [self.new[at].whole for at in new]

    def _texts(self, old: range, new: range) -> tuple[list[str], list[str]]:
        return [self.old[at].text for at in old], [self.new[at].text for at in new]

    def _pair(self, old: range, new: range, earlier: list[int | None]) -> None:
        """Pairs lines that were changed, in their order, so that they are alike as much as possible."""
        if len(old) == len(new):
            for at, number in zip(old, new, strict=True):
                if self._alike(at, number):
                    earlier[number] = at
        elif len(old) * len(new) <= _MAX_PAIRS:
            for at, number in _likest([[self._alike(at, number) for number in new] for at in old]):
                earlier[new[number]] = old[at]

    def _alike(self, at: int, number: int) -> float:
        return Indel.normalized_similarity(self.old[at].text, self.new[number].text, score_cutoff=_SAME_LINE)

    def _kept(self, number: int, at: int, earlier: Sequence[int | None]) -> str | None:
        old, found, new = self.old[at], self.found[at], self.new[number]
        indent = found.indent if new.indent == old.indent else new.indent
        if old.text == new.text and old.text != found.text and self._meets_neighbours(number, at, earlier):
            return None if loses(old.text, found.text, new.text) else indent + new.text
        text = merged_line(old.text, found.text, new.text)
        return None if text is None else indent + text

    def _meets_neighbours(self, number: int, at: int, earlier: Sequence[int | None]) -> bool:
        """Whether lines come or go just where the file's line differs: the separator at its end depends on them."""
        is_last, was_last = number == len(self.new) - 1, at == len(self.old) - 1
        below = was_last if is_last else earlier[number + 1] == at + 1
        above = earlier[number - 1] == at - 1
        old, found = self.old[at].text, self.found[at].text
        return (not below and reaches_end(old, found)) or (not above and reaches_start(old, found))

    def _gap(self, number: int, earlier: int | None) -> str:
        """What follows a new line: as in the file, where the model left it as it was."""
        is_last = number == len(self.new) - 1
        same = earlier is not None and self.old[earlier].whole == self.new[number].whole
        earlier = len(self.old) - 1 if is_last else earlier
        mine = self.new[number].gap
        if earlier is None or self.old[earlier].breaks != self.new[number].breaks:
            return mine.replace("\n", self.style)
        theirs = self.found[earlier].gap
        if mine and not is_last and "\n" not in theirs:
            return self.style  # it was the file's last line and is not any more
        if same or mine == self.old[earlier].gap:
            return theirs
        return mine[: len(mine) - len(mine.lstrip(" \t"))] + theirs.lstrip(" \t")

    def _is_typographic(self, text: str) -> bool:
        """Whether quotes, dashes or blanks come in that the old lines have in the place of the file's plain ones."""
        found = _joined(self.found)
        odd = set(_joined(self.old)) - set(found)
        return any(not sign.isascii() and Folded(sign, LOOK_ALIKES).text != sign for sign in odd & set(text))

    def _is_balanced(self, text: str) -> bool:
        """Whether brackets and quotes are as even as they were in the file, or changed as the model changed them."""
        if not text.strip() or all(old.text == found.text for old, found in zip(self.old, self.found, strict=True)):
            return True
        was, quoted, wanted = (evenness(_joined(lines)) for lines in (self.found, self.old, self.new))
        quotes = [(a + b + c) % 2 for a, b, c in zip(was[0], quoted[0], wanted[0], strict=True)]
        brackets = [a - b + c for a, b, c in zip(was[1], quoted[1], wanted[1], strict=True)]
        return evenness(text) in (was, (quotes, brackets))


def _unequal(
    old: range, new: range, seen: Callable[[range, range], tuple[list[str], list[str]]], earlier: list[int | None]
) -> Iterator[tuple[range, range]]:
    """Notes which lines are the same, and gives the stretches between them that are not."""
    for step in compared(*seen(old, new)):
        theirs, mine = (
            old[step.old.start : step.old.stop],
            new[step.new.start : step.new.stop],
        )
        if step.same:
            for at, number in zip(theirs, mine, strict=True):
                earlier[number] = at
        else:
            yield theirs, mine


def _likest(scores: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """The pairs of rows and columns, both rising, whose scores have the largest sum; none of score 0."""
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


def _joined(lines: Sequence[Line]) -> str:
    return "\n".join(line.text for line in lines)


def evenness(text: str) -> tuple[list[int], list[int]]:
    """Returns which quotes there are an odd number of, and how many brackets of each kind stay open."""
    plain = _APOSTROPHE.sub("", text)
    quotes = [plain.count(sign) % 2 for sign in "\"'`"]
    return quotes, [plain.count(first) - plain.count(last) for first, last in ("()", "[]", "{}")]
