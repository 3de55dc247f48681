"""Fuzzy replacement, the last resort of an edit: the one place of a file whose lines are similar to the old text.

Lines are compared one with one, so that a matching first and last line do not hide a different middle. Blank lines are
ignored, and the indentation must differ by one constant shift. Numbers, operators and backslashes must be equal:
another number means another place, another backslash an escaping error that the new text has, too. A second place of
nearly the same similarity is refused, and so is a search that takes more than a fixed amount of work; nothing depends
on elapsed time. Instead of whole lines, a part of one line may match (``fragments``).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from rapidfuzz import process
from rapidfuzz.distance import OSA, Indel

from ...shared.errors import ErrorType, ToolError
from .merge import SourceLine, changes, split_source, split_tokens
from .normalization import BLANK_RUNS, LOOK_ALIKES, NormalizedText
from .rewrite import Span, join_differences, line_differences, rewrite, shift_between
from .textfile import TextFile

_MIN_LINE_SIMILARITY = 0.75
"""The least similarity of each line."""
_MAX_LINE_CHARS = 2000
_MAX_FILE_CHARS = 4 * 1024 * 1024
_MAX_WORK = 60_000
"""Pairs of ordinary lines compared, about 0.6 µs each, before the search is given up."""
_PAIR_CHARS = 32_000
"""Product of two lines' lengths, in characters, that costs as much as one pair of ordinary lines."""
_SHOWN = 5
_BLANK = " \t\r"
_NORMALIZATIONS = (LOOK_ALIKES, BLANK_RUNS)
MIN_SIMILARITY = 0.9
"""The least share of characters, of both texts together, that are the same."""
MARGIN = 0.05
"""By how much the best place must exceed every other."""
MIN_CHARS = 12
"""Shorter texts are similar to others by chance."""
_MIN_LINES, _SHORT_CHARS = 3, 40
"""Texts with less have too little context: few words may differ, and only by typos."""
_WORDS_PER_TYPO = 8
_MIN_WORDS, _MANY_WORDS = 5, 20
_TYPO_CHARS, _TYPO_SIMILARITY = 4, 0.8
_WORD = re.compile(r"\w+")
_SIGNIFICANT = re.compile(
    r"""
    \d+|\\                                                    # numbers; mistakes in escaping
    | [<>=/%&|^~+]                                            # operators
    | (?<![\w])-(?=[\w\s=(>])|-(?![\w])                       # a minus, but no hyphen
    | (?<=\s)\*+(?=\s)|(?<=[\w)\]])\*+(?=[\w(\[])             # a product, but no emphasis
    | !(?=[\w(=\[])
    | \b(?:not|no|nor|never|none|without|unless|except|and|or|xor|true|false|null|nil|yes)\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NEGATIONS = ("un", "in", "im", "ir", "il", "dis", "non", "not", "de", "anti", "mis", "no", "never")
_MAX_CHARS = 4000
_MAX_PAIRS = 4000
"""Fragments compared before the search stops without a result."""
_WORK_CHARS = 200_000_000
"""The same for the sum of the products of both texts' lengths, in characters."""
Fragment = tuple[int, int, float]
"""Start offset, end offset, similarity."""


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
            self._work += len(mine) * len(theirs) // _PAIR_CHARS
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


def significant_tokens(line: str) -> list[str]:
    """Returns the tokens that must be equal: numbers, operators and negations, which change the meaning, and
    backslashes, which are escaping errors.
    """
    return [each.lower() for each in _SIGNIFICANT.findall(line)]


def is_short(wanted: Sequence[str]) -> bool:
    """Whether the text is so short that similarity alone is not sufficient."""
    return len(wanted) < _MIN_LINES or sum(map(len, wanted)) < _SHORT_CHARS


def is_typo(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Whether the words of a short text differ only by typos."""
    words = sum(len(_WORD.findall(line)) for line in wanted)
    differing = 0
    for mine, theirs in zip(wanted, found, strict=True):
        tokens = split_tokens(mine)
        for change in changes(tokens, split_tokens(theirs)):
            before, after = "".join(tokens[change.start : change.end]), "".join(change.tokens)
            differing += bool((before + after).strip())
            has_words = bool(_WORD.search(before) or _WORD.search(after))
            certain = words >= _MANY_WORDS or (words >= _MIN_WORDS and _is_same_word(before.strip(), after.strip()))
            if has_words and not certain:
                return False
    return differing <= max(1, words // _WORDS_PER_TYPO)


def are_opposites(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Whether a word of one text is, in the other, the same word with a negating prefix."""
    for mine, theirs in zip(wanted, found, strict=True):
        if mine == theirs:
            continue
        tokens = split_tokens(mine)
        for change in changes(tokens, split_tokens(theirs)):
            before, after = ("".join(each).lower() for each in (tokens[change.start : change.end], change.tokens))
            short, long = sorted((before, after), key=len)
            if short and any(_differs_by_prefix(short, long, prefix) for prefix in _NEGATIONS):
                return True
    return False


def _differs_by_prefix(short: str, long: str, prefix: str) -> bool:
    """``is_valid`` and ``is_invalid``, ``enabled`` and ``notEnabled``."""
    size = len(long) - len(short)
    if size not in (len(prefix), len(prefix) + 1):
        return False
    places = (at for at in range(len(short)) if long[: at + size] == short[:at] + long[at : at + size])
    return any(long[at : at + len(prefix)] == prefix and long[at + size :] == short[at:] for at in places)


def _is_same_word(before: str, after: str) -> bool:
    """Whether one word was added or removed, or spelled slightly differently."""
    if not before or not after:
        return " " not in before + after
    alike = Indel.normalized_similarity(before, after) >= _TYPO_SIMILARITY
    return alike and before[0] == after[0] and min(len(before), len(after)) >= _TYPO_CHARS


def fragments(text: str, old: str) -> list[Fragment]:
    """Returns the parts of lines that are similar to the old text, best first and without overlaps.

    Empty if comparing all of them takes too much work.
    """
    words = _WORD.findall(old)
    if "\n" in old or len(words) < 2 or len(old) > _MAX_CHARS:
        return []
    first, last = words[0], words[-1]
    head, tail = old[: old.index(first)], old[old.rindex(last) + len(last) :]
    starts = [match.start() - len(head) for match in _whole_words(text, first)]
    ends = [match.end() + len(tail) for match in _whole_words(text, last)]
    found: list[Fragment] = []
    spread = int(len(old) * (1 - MIN_SIMILARITY + MARGIN) * 2) + 1
    pairs = 0
    for start in starts:
        if start < 0 or not text.startswith(head, start):
            continue
        low = bisect_left(ends, start + len(old) - spread)
        high = bisect_right(ends, start + len(old) + spread)
        pairs += high - low
        if pairs > _MAX_PAIRS or pairs * len(old) * len(old) > _WORK_CHARS:
            return []
        found += _similar_fragments(text, old, start, ends[low:high], tail)
    return _without_overlaps(found)


def _whole_words(text: str, word: str) -> Iterator[re.Match[str]]:
    return re.finditer(_apart(word), text)


def _apart(part: str) -> str:
    """Returns the pattern of the text between the ends of words."""
    return rf"(?<!\w){re.escape(part)}(?!\w)"


def _similar_fragments(text: str, old: str, start: int, ends: Sequence[int], tail: str) -> Iterator[Fragment]:
    for end in ends:
        there = text[start:end]
        if "\n" in there or not there.endswith(tail):
            continue
        score = Indel.normalized_similarity(old, there, score_cutoff=MIN_SIMILARITY - MARGIN)
        if score and significant_tokens(old) == significant_tokens(there) and not are_opposites([old], [there]):
            yield start, end, score


def _without_overlaps(found: Sequence[Fragment]) -> list[Fragment]:
    """Keeps the best one of fragments that overlap."""
    kept: list[Fragment] = []
    for start, end, score in sorted(found, key=lambda each: (-each[2], each[0])):
        if all(end <= other[0] or other[1] <= start for other in kept):
            kept.append((start, end, score))
    return kept


def slips(text: str, old: str) -> list[Fragment]:
    """Returns the parts of lines that differ from a short old text by one letter of a word that the text lacks."""
    if "\n" in old or not MIN_CHARS <= len(old) <= _SHORT_CHARS:
        return []
    middle, size = len(old) // 2, len(old)  # one half is without the slip
    places = [(match.start(), match.start() + size) for match in re.finditer(re.escape(old[:middle]), text)]
    places += [(match.end() - size, match.end()) for match in re.finditer(re.escape(old[middle:]), text)]
    moves = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)) if len(places) <= _MAX_PAIRS else ()
    near = {(max(0, start + first), end + last) for start, end in places for first, last in moves}
    found = [(*place, Indel.normalized_similarity(old, text[slice(*place)])) for place in near]
    return _without_overlaps([each for each in found if _is_slip(text, old, each[0], text[each[0] : each[1]])])


def _is_slip(text: str, old: str, start: int, there: str) -> bool:
    if OSA.distance(old, there, score_cutoff=1) != 1 or not re.compile(_apart(there)).match(text, start):
        return False
    tokens = split_tokens(old)
    (change, *others) = changes(tokens, split_tokens(there))
    if others or significant_tokens(old) != significant_tokens(there) or are_opposites([old], [there]):
        return False
    before, after = "".join(tokens[change.start : change.end]), "".join(change.tokens)
    words = before.isalpha() and after.isalpha() and min(len(before), len(after)) >= _TYPO_CHARS
    return words and before[0].lower() == after[0].lower() and not re.search(_apart(before), text)


def is_certain(text: str, old: str, fragment: Fragment) -> bool:
    """Whether the fragment is similar enough and differs only by typos."""
    start, end, score = fragment
    return score >= MIN_SIMILARITY and is_typo([old], [text[start:end]])
