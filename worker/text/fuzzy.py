"""The last resort: the one place of a file whose lines are nearly those of the old text.

Whole lines are compared, each with the one in its place: no first and last line can carry a wrong middle. Blank lines
do not count, indentation has to differ constantly. Numbers, operators and backslashes have to be the same: another
number is another place, another backslash a mistake that the new text has, too. A second place that is nearly as much
alike is a refusal, and so is more work than a fixed amount; none of it depends on the clock. Of one line, a part may be
meant (``fragments``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from rapidfuzz import process
from rapidfuzz.distance import Indel

from shared.errors import ErrorType, ToolError
from worker.text.folding import BLANK_RUNS, LOOK_ALIKES, Folded
from worker.text.indentation import shift_between
from worker.text.likeness import (
    ALIKE,
    MARGIN,
    MIN_CHARS,
    are_opposites,
    fixed_in,
    fragments,
    is_certain,
    is_little,
    is_slip,
)
from worker.text.merging import Line, lines_of
from worker.text.rewriting import Span, differences, listed, rewritten
from worker.text.textfile import TextFile

_LINE_ALIKE = 0.75
"""The least for each single line."""
_MAX_LINE_CHARS = 2000
_MAX_FILE_CHARS = 4 * 1024 * 1024
_MAX_WORK = 60_000
"""Pairs of ordinary lines compared, about 0.6 µs each, before the search is given up."""
_WORK_CHARS = 32_000
"""Characters of one line times those of the other that cost as much again."""
_SHOWN = 5
_BLANK = " \t\r"
_FOLDS = (LOOK_ALIKES, BLANK_RUNS)


@dataclass(frozen=True, slots=True)
class Nearly:
    """What to replace by what, and what the model has to know of it."""

    span: Span
    remark: str
    moved: bool = False


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
    """The one place that is at least ``ALIKE``, or None. Raises ToolError: EDIT_AMBIGUOUS where there are two,
    EDIT_NOT_FOUND where the change would lose what the file has otherwise."""
    quoted = lines_of(old.replace("\r\n", "\n"))
    wanted = _comparable("\n".join(line.text for line in quoted[1:]))
    if not _is_distinct(wanted) or len(file.text) > _MAX_FILE_CHARS:
        return None
    filled = _Filled(file.text)
    place = _best(_Search(wanted, filled.texts).places(), filled)
    if place is None:
        return _in_a_line(file, old, new)
    found = filled.texts[place.first :][: len(wanted)]
    if are_opposites(wanted, found) or (is_little(wanted) and not is_slip(wanted, found)):
        return None
    start, end = _stretch(file, filled, place, quoted)
    if shift_between(quoted, lines_of(file.text[start:end])) is None:
        return None
    return _replaced(file, Span(start, end, old), new, place.percent)


def _in_a_line(file: TextFile, old: str, new: str) -> Nearly | None:
    """The same for a part of a line."""
    folded, wanted = Folded(file.text, *_FOLDS), Folded(old, *_FOLDS).text
    found = fragments(folded.text, wanted)
    if not found or not is_certain(folded.text, wanted, found[0]):
        return None
    near = [each for each in found if each[2] >= min(ALIKE, found[0][2] - MARGIN)]
    if len(near) > 1:
        number = [(folded.text.count("\n", 0, start) + 1, score) for start, _, score in near]
        raise _ambiguous([(line, min(99, int(score * 100))) for line, score in sorted(number)])
    start, end, score = found[0]
    if folded.splits(start) or folded.splits(end):
        return None
    return _replaced(file, Span(folded.origin(start), folded.origin(end), old), new, min(99, int(score * 100)))


def _is_distinct(wanted: Sequence[str]) -> bool:
    """Little text is soon like some other, and endless lines take endless time."""
    sizes = [len(line) for line in wanted]
    return bool(sizes) and sum(sizes) >= MIN_CHARS and max(sizes) <= _MAX_LINE_CHARS


def _comparable(text: str) -> list[str]:
    folds = _FOLDS[1:] if text.isascii() else _FOLDS
    return [line.strip(_BLANK) for line in Folded(text, *folds).text.split("\n")]


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
            lost = self._lost(first, int(size * (1 - ALIKE + MARGIN)))
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
            self._fixed[line] = fixed_in(line)
        return self._fixed[line]


def _best(places: Sequence[_Place], filled: _Filled) -> _Place | None:
    """The place that is meant. Raises ToolError(EDIT_AMBIGUOUS)."""
    best = max(places, key=lambda place: place.score, default=None)
    if best is None or best.score < ALIKE:
        return None
    near = [place for place in places if place.score >= min(ALIKE, best.score - MARGIN)]
    if len(near) == 1:
        return best
    raise _ambiguous([(filled.numbers[place.first] + 1, place.percent) for place in near])


def _ambiguous(near: Sequence[tuple[int, int]]) -> ToolError:
    lines = [f"line {number} ({percent} % alike)" for number, percent in near[:_SHOWN]]
    more = ", …" if len(near) > _SHOWN else ""
    return ToolError(
        ErrorType.EDIT_AMBIGUOUS,
        f"old_string is not in the file, and {len(near)} places are nearly like it: {', '.join(lines)}{more}. "
        "Nothing was changed. Read the file and copy old_string exactly from the place that is meant.",
    )


def _replaced(file: TextFile, place: Span, new: str, percent: int) -> Nearly | None:
    """``place`` has the old text."""
    done = rewritten(file, (place.start, place.end), place.text, new)
    if done is None:
        return None
    quoted, found = (lines_of(text) for text in (place.text, file.text[place.start : place.end]))
    first, last, said = differences(file.text, place.start, quoted, found)
    lines = f"lines {first}-{last}" if last > first else f"line {first}"
    differed = f"These lines differed: {listed(said)}." if said else "Only blank lines differed."
    return Nearly(
        Span(place.start, place.end, done.text),
        f"old_string is not in the file: {lines}, {percent} % alike, were taken for it. "
        f"What new_string keeps of it stays as the file has it. {differed}",
        done.moved,
    )


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
