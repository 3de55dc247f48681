"""The last resort: the one place of a file whose lines are nearly those of the old text (C01).

Whole lines are compared, each with the one in its place: no first and last line can carry a wrong middle. Blank lines
do not count, indentation has to differ constantly. Numbers and backslashes have to be the same: another number is
another place, another backslash a mistake that the new text has, too. A second place that is nearly as much alike is
a refusal, and so is more work than a fixed amount; none of it depends on the clock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from rapidfuzz import process
from rapidfuzz.distance import Indel

from shared.errors import ErrorType, ToolError
from worker.output import clip
from worker.text.folding import LOOK_ALIKES, Folded
from worker.text.indentation import rule_of
from worker.text.merging import Line, Merge, lines_of
from worker.text.spans import Span, line_end
from worker.text.textfile import TextFile

ALIKE = 0.9
"""Of all characters of both sides, the share that is the same."""
_LINE_ALIKE = 0.75
"""The least for each single line."""
_MARGIN = 0.05
"""How much better than any other place the best one must be."""
_MIN_LINES, _MIN_CHARS = 3, 40
_MAX_LINE_CHARS = 2000
_MAX_FILE_CHARS = 4 * 1024 * 1024
_MAX_WORK = 60_000
"""Pairs of ordinary lines compared, about 0.6 µs each, before the search is given up."""
_WORK_CHARS = 32_000
"""Characters of one line times those of the other that cost as much again."""
_SHOWN, _SHOWN_CHARS = 5, 160
_FIXED = re.compile(r"\d+|\\")
_BLANK = " \t\r"


@dataclass(frozen=True, slots=True)
class Nearly:
    """What to replace by what, and what the model has to know of it."""

    span: Span
    remark: str


@dataclass(frozen=True, slots=True)
class _Place:
    """Lines of the file, counted without the blank ones, and how much they are like the old text."""

    first: int
    score: float

    @property
    def percent(self) -> int:
        return min(99, int(self.score * 100))


class _Filled:
    """The lines of a file that are not blank: their numbers from 0, and their texts as they are compared."""

    def __init__(self, text: str) -> None:
        self.raw = text.split("\n")
        self.starts = [0, *accumulate(len(line) + 1 for line in self.raw)]
        folded = _comparable(text)
        self.numbers = [number for number, line in enumerate(self.raw) if line.strip(_BLANK)]
        self.texts = [folded[number] for number in self.numbers]


def nearly(file: TextFile, old: str, new: str) -> Nearly | None:
    """The one place that is at least ``ALIKE``, or None. Raises ToolError(EDIT_AMBIGUOUS) where there are two."""
    quoted = lines_of(old.replace("\r\n", "\n"))
    wanted = _comparable("\n".join(line.text for line in quoted[1:]))
    if not _is_distinct(wanted) or len(file.text) > _MAX_FILE_CHARS:
        return None
    filled = _Filled(file.text)
    place = _best(_Search(wanted, filled.texts).places(), filled)
    return place and _replaced(file, filled, place, quoted, lines_of(new.replace("\r\n", "\n")))


def _is_distinct(wanted: Sequence[str]) -> bool:
    """Little text is soon like some other, and endless lines take endless time."""
    sizes = [len(line) for line in wanted]
    return len(sizes) >= _MIN_LINES and sum(sizes) >= _MIN_CHARS and max(sizes) <= _MAX_LINE_CHARS


def _comparable(text: str) -> list[str]:
    plain = text if text.isascii() else Folded(text, LOOK_ALIKES).text
    return [line.strip(_BLANK) for line in plain.split("\n")]


class _Search:
    """Looks for the wanted lines, the longest first: it decides where to look, the next ones whether to go on."""

    def __init__(self, wanted: Sequence[str], texts: Sequence[str]) -> None:
        self._wanted, self._texts = wanted, texts
        self._order = sorted(range(len(wanted)), key=lambda at: -len(wanted[at]))
        self._fixed: dict[str, list[str]] = {}
        self._work = 0

    def places(self) -> list[_Place]:
        """Every place that may be meant or be taken for it; none where finding them takes too long."""
        wanted, texts, longest = self._wanted, self._texts, self._order[0]
        near = process.extract(
            wanted[longest], texts, scorer=Indel.normalized_similarity, score_cutoff=_LINE_ALIKE, limit=None
        )
        length = sum(map(len, wanted))
        lengths = [0, *accumulate(map(len, texts))]
        found: list[_Place] = []
        for first in sorted(at - longest for _, _, at in near):
            end = first + len(wanted)
            if first < 0 or end > len(texts):
                continue
            size = length + lengths[end] - lengths[first]
            lost = self._lost(first, int(size * (1 - ALIKE + _MARGIN)))
            if self._work > _MAX_WORK:
                return []
            # a place that begins or ends otherwise may be a part of a line, and would take the rest of it along
            is_whole = wanted[0][:1] == texts[first][:1] and wanted[-1][-1:] == texts[end - 1][-1:]
            if lost is not None and is_whole:
                found.append(_Place(first, 1 - lost / size))
        return found

    def _lost(self, first: int, most: int) -> int | None:
        """How many characters are not the same, or None where they are too many, in a line or in all of them."""
        lost = 0
        for at in self._order:
            mine, theirs = self._wanted[at], self._texts[first + at]
            self._work += 1
            if mine == theirs:
                continue
            self._work += len(mine) * len(theirs) // _WORK_CHARS
            least = int((len(mine) + len(theirs)) * (1 - _LINE_ALIKE))
            distance = Indel.distance(mine, theirs, score_cutoff=least)
            lost += distance
            if distance > least or lost > most or self._fixed_in(mine) != self._fixed_in(theirs):
                return None
        return lost

    def _fixed_in(self, line: str) -> list[str]:
        if line not in self._fixed:
            self._fixed[line] = _FIXED.findall(line)
        return self._fixed[line]


def _best(places: Sequence[_Place], filled: _Filled) -> _Place | None:
    """The place that is meant. Raises ToolError(EDIT_AMBIGUOUS)."""
    best = max(places, key=lambda place: place.score, default=None)
    if best is None or best.score < ALIKE:
        return None
    near = [place for place in places if place.score >= min(ALIKE, best.score - _MARGIN)]
    if len(near) == 1:
        return best
    lines = [f"line {filled.numbers[place.first] + 1} ({place.percent} % alike)" for place in near[:_SHOWN]]
    more = ", …" if len(near) > _SHOWN else ""
    raise ToolError(
        ErrorType.EDIT_AMBIGUOUS,
        f"old_string is not in the file, and {len(near)} places are nearly like it: {', '.join(lines)}{more}. "
        "Nothing was changed. Read the file and copy old_string exactly from the place that is meant.",
    )


def _replaced(
    file: TextFile, filled: _Filled, place: _Place, old: Sequence[Line], new: Sequence[Line]
) -> Nearly | None:
    start, end = _stretch(file, filled, place, old)
    found = lines_of(file.text[start:end])
    pairs = list(zip(old[1:], found[1:], strict=True))
    rule = rule_of([(mine.indent, theirs.indent) for mine, theirs in pairs])
    if rule is None:
        return None
    text = Merge(old, found, new, rule, line_end(file, start, end)).text()
    numbers = filled.numbers[place.first :][: len(pairs)]
    differing = [
        (number + 1, theirs.text, mine.text)
        for number, (mine, theirs) in zip(numbers, pairs, strict=True)
        if mine.text != theirs.text
    ]
    return None if text is None else Nearly(Span(start, end, text), _remark(place, numbers, differing))


def _stretch(file: TextFile, filled: _Filled, place: _Place, old: Sequence[Line]) -> tuple[int, int]:
    """From where to where the file is replaced: the lines, and blank ones around them where the old text has some."""
    numbers, past = filled.numbers, place.first + len(old) - 1
    first, last = numbers[place.first], numbers[past - 1]
    before = numbers[place.first - 1] + 1 if place.first else 0
    after = numbers[past] if past < len(numbers) else len(filled.raw)
    start = filled.starts[max(before, first - old[0].breaks)]
    if not old[-1].breaks:
        return start, filled.starts[last] + len(filled.raw[last].rstrip(_BLANK))
    return start, min(len(file.text), filled.starts[min(after, last + old[-1].breaks)])


def _remark(place: _Place, numbers: Sequence[int], differing: Sequence[tuple[int, str, str]]) -> str:
    """What was taken for the old text, line by line where it differs: the model has to see what it really replaced."""
    said = (
        f"old_string is not in the file: lines {numbers[0] + 1}-{numbers[-1] + 1}, {place.percent} % alike, were "
        "taken for it. What new_string keeps of it stays as the file has it."
    )
    if not differing:
        return f"{said} Only blank lines differed."
    shown = [
        f"line {number} of the file was {clip(theirs, _SHOWN_CHARS)!r}, not {clip(mine, _SHOWN_CHARS)!r}"
        for number, theirs, mine in differing[:_SHOWN]
    ]
    more = f"; and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
    return f"{said} These lines differed: {'; '.join(shown)}{more}."
