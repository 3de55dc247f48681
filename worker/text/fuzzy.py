"""Fuzzy replacement, the last resort of an edit: the one place of a file whose lines are similar to the old text.

Lines are compared one with one, so that a matching first and last line do not hide a different middle. Blank lines are
ignored, and the indentation must differ by one constant shift. Numbers, operators and backslashes must be equal:
another number means another place, another backslash an escaping error that the new text has, too. A second place of
nearly the same similarity is refused, and so is a search that takes more than a fixed amount of work; nothing depends
on elapsed time. Instead of whole lines, a part of one line may match (``fragments``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from rapidfuzz import process
from rapidfuzz.distance import Indel

from ...shared.errors import ErrorType, ToolError
from .indentation import shift_between
from .merge import SourceLine, split_source
from .normalization import BLANK_RUNS, LOOK_ALIKES, NormalizedText
from .rewrite import Span, join_differences, line_differences, rewrite
from .similarity import (
    MARGIN,
    MIN_CHARS,
    MIN_SIMILARITY,
    are_opposites,
    fragments,
    is_certain,
    is_short,
    is_typo,
    significant_tokens,
    slips,
)
from .textfile import TextFile

_MIN_LINE_SIMILARITY = 0.75
"""The least similarity of each line."""
_MAX_LINE_CHARS = 2000
_MAX_FILE_CHARS = 4 * 1024 * 1024
_MAX_WORK = 60_000
"""Pairs of ordinary lines compared, about 0.6 µs each, before the search is given up."""
_WORK_CHARS = 32_000
"""Product of two lines' lengths, in characters, that costs as much as one pair of ordinary lines."""
_SHOWN = 5
_BLANK = " \t\r"
_NORMALIZATIONS = (LOOK_ALIKES, BLANK_RUNS)


@dataclass(frozen=True, slots=True)
class FuzzyReplacement:
    """What to write where, and the remark about it for the model."""

    span: Span
    remark: str
    moved: bool = False


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A possible place: the index of its first line among the non-blank lines, and its similarity from 0 to 1."""

    first: int
    score: float

    @property
    def percent(self) -> int:
        return min(99, int(self.score * 100))


class _NonBlankLines:
    """The non-blank lines of a file: their numbers from 0, and their normalized texts."""

    def __init__(self, text: str) -> None:
        self.raw = text.split("\n")
        self.starts = [0, *accumulate(len(line) + 1 for line in self.raw)]
        normalized = _comparable(text)
        self.numbers = [number for number, line in enumerate(self.raw) if line.strip(_BLANK)]
        self.texts = [normalized[number] for number in self.numbers]


def replace_fuzzy(file: TextFile, old: str, new: str) -> FuzzyReplacement | None:
    """Finds the one place of at least ``MIN_SIMILARITY`` and computes what to write there; None if there is none.

    Raises:
        ToolError: EDIT_AMBIGUOUS for several similar places, EDIT_NOT_FOUND if the edit would lose text in which the
            file differs from the old text.
    """
    quoted = split_source(old.replace("\r\n", "\n"))
    wanted = _comparable("\n".join(line.text for line in quoted[1:]))
    if not _is_distinct(wanted) or len(file.text) > _MAX_FILE_CHARS:
        return None
    lines_with_text = _NonBlankLines(file.text)
    place = _best_candidate(_Search(wanted, lines_with_text.texts).places(), lines_with_text)
    if place is None:
        return _replace_in_line(file, old, new)
    found = lines_with_text.texts[place.first :][: len(wanted)]
    if are_opposites(wanted, found):
        return None
    if is_short(wanted) and not is_typo(wanted, found):
        return _replace_in_line(file, old, new)
    start, end = _replaced_range(file, lines_with_text, place, quoted)
    if shift_between(quoted, split_source(file.text[start:end])) is None:
        return None
    return _replacement(file, Span(start, end, old), new, place.percent)


def _replace_in_line(file: TextFile, old: str, new: str) -> FuzzyReplacement | None:
    """The same for an old text that is a part of one line."""
    normalized, wanted = NormalizedText(file.text, *_NORMALIZATIONS), NormalizedText(old, *_NORMALIZATIONS).text
    found = fragments(normalized.text, wanted)
    if not found or not is_certain(normalized.text, wanted, found[0]):
        found = slips(normalized.text, wanted)
    if not found:
        return None
    near = [each for each in found if each[2] >= min(MIN_SIMILARITY, found[0][2] - MARGIN)]
    if len(near) > 1:
        number = [(normalized.text.count("\n", 0, start) + 1, score) for start, _, score in near]
        raise _ambiguous([(line, min(99, int(score * 100))) for line, score in sorted(number)])
    start, end, score = found[0]
    if normalized.splits(start) or normalized.splits(end):
        return None
    return _replacement(
        file,
        Span(normalized.original_offset(start), normalized.original_offset(end), old),
        new,
        min(99, int(score * 100)),
    )


def _is_distinct(wanted: Sequence[str]) -> bool:
    """Whether the text is long enough to be unlike others by chance, and its lines short enough to be compared."""
    sizes = [len(line) for line in wanted]
    return bool(sizes) and sum(sizes) >= MIN_CHARS and max(sizes) <= _MAX_LINE_CHARS


def _comparable(text: str) -> list[str]:
    normalizations = _NORMALIZATIONS[1:] if text.isascii() else _NORMALIZATIONS
    return [line.strip(_BLANK) for line in NormalizedText(text, *normalizations).text.split("\n")]


class _Search:
    """Search for the wanted lines: the longest one selects the candidates, the others confirm them."""

    def __init__(self, wanted: Sequence[str], texts: Sequence[str]) -> None:
        self._wanted, self._texts = wanted, texts
        self._order = sorted(range(len(wanted)), key=lambda at: -len(wanted[at]))
        self._significant: dict[str, list[str]] = {}
        self._work = 0

    def places(self) -> list[_Candidate]:
        """Returns every candidate, also those just below the limit; none if the search takes too much work."""
        wanted, texts, longest = self._wanted, self._texts, self._order[0]
        near = process.extract(
            wanted[longest], texts, scorer=Indel.normalized_similarity, score_cutoff=_MIN_LINE_SIMILARITY, limit=None
        )
        length = sum(map(len, wanted))
        lengths = [0, *accumulate(map(len, texts))]
        found: list[_Candidate] = []
        for first in sorted(at - longest for _, _, at in near):
            end = first + len(wanted)
            if first < 0 or end > len(texts):
                continue
            size = length + lengths[end] - lengths[first]
            distance = self._distance(first, int(size * (1 - MIN_SIMILARITY + MARGIN)))
            if self._work > _MAX_WORK:
                return []
            # with another first or last character the old text may be a part of a line: the rest would be replaced, too
            is_whole = wanted[0][:1] == texts[first][:1] and wanted[-1][-1:] == texts[end - 1][-1:]
            if distance is not None and is_whole:
                found.append(_Candidate(first, 1 - distance / size))
        return found

    def _distance(self, first: int, most: int) -> int | None:
        """Returns the number of differing characters, or None if a line, or all of them together, have too many."""
        total = 0
        for at in self._order:
            mine, theirs = self._wanted[at], self._texts[first + at]
            self._work += 1
            if mine == theirs:
                continue
            self._work += len(mine) * len(theirs) // _WORK_CHARS
            least = int((len(mine) + len(theirs)) * (1 - _MIN_LINE_SIMILARITY))
            distance = Indel.distance(mine, theirs, score_cutoff=least)
            total += distance
            if distance > least or total > most or self._significant_tokens(mine) != self._significant_tokens(theirs):
                return None
        return total

    def _significant_tokens(self, line: str) -> list[str]:
        if line not in self._significant:
            self._significant[line] = significant_tokens(line)
        return self._significant[line]


def _best_candidate(places: Sequence[_Candidate], lines_with_text: _NonBlankLines) -> _Candidate | None:
    """Returns the only candidate of sufficient similarity, or None. Raises ToolError(EDIT_AMBIGUOUS)."""
    best = max(places, key=lambda place: place.score, default=None)
    if best is None or best.score < MIN_SIMILARITY:
        return None
    near = [place for place in places if place.score >= min(MIN_SIMILARITY, best.score - MARGIN)]
    if len(near) == 1:
        return best
    raise _ambiguous([(lines_with_text.numbers[place.first] + 1, place.percent) for place in near])


def _ambiguous(near: Sequence[tuple[int, int]]) -> ToolError:
    lines = [f"line {number} ({percent} % alike)" for number, percent in near[:_SHOWN]]
    more = ", …" if len(near) > _SHOWN else ""
    return ToolError(
        ErrorType.EDIT_AMBIGUOUS,
        f"old_string is not in the file, and {len(near)} places are similar to it: {', '.join(lines)}{more}. "
        "Nothing was changed. Read the file and copy old_string exactly from the place to change.",
    )


def _replacement(file: TextFile, place: Span, new: str, percent: int) -> FuzzyReplacement | None:
    """Computes the replacement of a place; the text of the span is the old text as it was requested."""
    done = rewrite(file, (place.start, place.end), place.text, new)
    if done is None:
        return None
    quoted, found = (split_source(text) for text in (place.text, file.text[place.start : place.end]))
    first, last, differences = line_differences(file.text, place.start, quoted, found)
    lines = f"lines {first}-{last}" if last > first else f"line {first}"
    differed = (
        f"These lines differed: {join_differences(differences)}." if differences else "Only blank lines differed."
    )
    return FuzzyReplacement(
        Span(place.start, place.end, done.text),
        f"old_string is not in the file: {lines}, {percent} % alike, were replaced instead. "
        f"The parts of old_string that new_string keeps were left as they are in the file. {differed}",
        done.moved,
    )


def _replaced_range(
    file: TextFile, lines_with_text: _NonBlankLines, place: _Candidate, old: Sequence[SourceLine]
) -> tuple[int, int]:
    """Returns the offsets of the replaced text: the lines, with the blank lines around them that the old text has."""
    numbers, past = lines_with_text.numbers, place.first + len(old) - 1
    first, last = numbers[place.first], numbers[past - 1]
    before = numbers[place.first - 1] + 1 if place.first else 0
    after = numbers[past] if past < len(numbers) else len(lines_with_text.raw)
    start = lines_with_text.starts[max(before, first - old[0].breaks)]
    if not old[-1].breaks:
        return start, lines_with_text.starts[last] + len(lines_with_text.raw[last].rstrip(_BLANK))
    return start, min(len(file.text), lines_with_text.starts[min(after, last + old[-1].breaks)])
