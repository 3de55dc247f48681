"""Fuzzy replacement, the last resort of an edit: the one place of a file whose lines are similar to the old text.

Lines are compared one with one, so that a matching first and last line do not hide a different middle. Blank lines are
ignored, and the indentation must differ by one constant shift. Numbers, operators and backslashes must be equal:
another number means another place, another backslash an escaping error that the new text has, too. A second place of
nearly the same similarity is refused, and so is a search that takes more than a fixed amount of work; nothing depends
on elapsed time. Instead of whole lines, a part of one line may match (``_fragments``).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from rapidfuzz import process
from rapidfuzz.distance import OSA, Indel

from ...shared.errors import ErrorType, ToolError
from .merge import SourceLine, changes, split_source, split_tokens
from .normalization import BLANK_RUNS, LOOK_ALIKES, NormalizedText
from .rewrite import Span, differences, rewrite, shift_between
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
    | [不没沒未无無非勿莫否只僅仅且或]|[零一二三四五六七八九十百千万萬亿億两兩]  # the same in Chinese and Japanese
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


def replace_fuzzy(file: TextFile, old: str, new: str) -> FuzzyReplacement | None:
    """Finds the one place of at least ``MIN_SIMILARITY`` and computes what to write there; None if there is none.

    Raises:
        ToolError: EDIT_AMBIGUOUS for several similar places, EDIT_NOT_FOUND if the edit would lose text in which the
            file differs from the old text.
    """
    quoted = split_source(old.replace("\r\n", "\n"))
    wanted = _comparable("\n".join(line.text for line in quoted[1:]))
    sizes = [len(line) for line in wanted]
    if sum(sizes) < MIN_CHARS or max(sizes) > _MAX_LINE_CHARS or len(file.text) > _MAX_FILE_CHARS:
        return None
    lines = file.text.split("\n")
    numbers = [number for number, line in enumerate(lines) if line.strip(_BLANK)]
    normalized = _comparable(file.text)
    texts = [normalized[number] for number in numbers]
    places = _places(wanted, texts)
    first, score = max(places, key=lambda place: place[1], default=(0, 0.0))
    if score < MIN_SIMILARITY:
        return _replace_in_line(file, old, new)
    _refuse_ambiguity([(numbers[at] + 1, score) for at, score in places])
    found = texts[first:][: len(wanted)]
    if _are_opposites(wanted, found):
        return None
    if is_short(wanted) and not _is_typo(wanted, found):
        return _replace_in_line(file, old, new)
    start, end = _replaced_range(lines, numbers, first, quoted)
    if shift_between(quoted, split_source(file.text[start:end])) is None:
        return None
    return _replacement(file, Span(start, end, old), new, score)


def _replace_in_line(file: TextFile, old: str, new: str) -> FuzzyReplacement | None:
    """The same for an old text that is a part of one line."""
    normalized, wanted = NormalizedText(file.text, *_NORMALIZATIONS), NormalizedText(old, *_NORMALIZATIONS).text
    found = _fragments(normalized.text, wanted)
    if not found or found[0][2] < MIN_SIMILARITY or not _is_typo([wanted], [normalized.text[slice(*found[0][:2])]]):
        found = _slips(normalized.text, wanted)
    if not found:
        return None
    _refuse_ambiguity(sorted((normalized.text.count("\n", 0, start) + 1, score) for start, _, score in found))
    start, end, score = found[0]
    if normalized.splits(start) or normalized.splits(end):
        return None
    place = Span(normalized.original_offset(start), normalized.original_offset(end), old)
    return _replacement(file, place, new, score)


def _comparable(text: str) -> list[str]:
    normalizations = _NORMALIZATIONS[1:] if text.isascii() else _NORMALIZATIONS
    return [line.strip(_BLANK) for line in NormalizedText(text, *normalizations).text.split("\n")]


def _places(wanted: Sequence[str], texts: Sequence[str]) -> list[tuple[int, float]]:
    """Returns the first line of every place of the wanted lines, also of those just below the limit, with its
    similarity from 0 to 1; none if the search takes too much work.

    The longest line selects the candidates, the others confirm them.
    """
    order = sorted(range(len(wanted)), key=lambda at: -len(wanted[at]))
    near = process.extract(
        wanted[order[0]], texts, scorer=Indel.normalized_similarity, score_cutoff=_MIN_LINE_SIMILARITY, limit=None
    )
    length, lengths = sum(map(len, wanted)), [0, *accumulate(map(len, texts))]
    found: list[tuple[int, float]] = []
    work = 0
    for first in sorted(at - order[0] for _, _, at in near):
        end = first + len(wanted)
        if first < 0 or end > len(texts):
            continue
        size = length + lengths[end] - lengths[first]
        pairs = ((wanted[at], texts[first + at]) for at in order)
        distance, cost = _distance(pairs, int(size * (1 - MIN_SIMILARITY + MARGIN)))
        work += cost
        if work > _MAX_WORK:
            return []
        # with another first or last character the old text may be a part of a line: the rest would be replaced, too
        is_whole = wanted[0][:1] == texts[first][:1] and wanted[-1][-1:] == texts[end - 1][-1:]
        if distance is not None and is_whole:
            found.append((first, 1 - distance / size))
    return found


def _distance(pairs: Iterator[tuple[str, str]], most: int) -> tuple[int | None, int]:
    """Returns how many characters differ, None if in a line, or in all together, these are too many; and the work."""
    total = work = 0
    for mine, theirs in pairs:
        work += 1
        if mine == theirs:
            continue
        work += len(mine) * len(theirs) // _PAIR_CHARS
        least = int((len(mine) + len(theirs)) * (1 - _MIN_LINE_SIMILARITY))
        distance = Indel.distance(mine, theirs, score_cutoff=least)
        total += distance
        if distance > least or total > most or significant_tokens(mine) != significant_tokens(theirs):
            return None, work
    return total, work


def _percent(score: float) -> int:
    return min(99, int(score * 100))


def _refuse_ambiguity(places: Sequence[tuple[int, float]]) -> None:
    """Raises ToolError(EDIT_AMBIGUOUS) if one of the lines is hardly less similar than the best one."""
    best = max(score for _, score in places)
    near = [(line, score) for line, score in places if score >= min(MIN_SIMILARITY, best - MARGIN)]
    if len(near) == 1:
        return
    lines = [f"line {line} ({_percent(score)} % alike)" for line, score in near[:_SHOWN]]
    more = ", …" if len(near) > _SHOWN else ""
    raise ToolError(
        ErrorType.EDIT_AMBIGUOUS,
        f"old_string is not in the file, and {len(near)} places are similar to it: {', '.join(lines)}{more}. "
        "Nothing was changed. Read the file and copy old_string exactly from the place to change.",
    )


def _replacement(file: TextFile, place: Span, new: str, score: float) -> FuzzyReplacement | None:
    """Computes the replacement of a place; the text of the span is the old text as it was requested."""
    done = rewrite(file, (place.start, place.end), place.text, new)
    if done is None:
        return None
    quoted, found = (split_source(text) for text in (place.text, file.text[place.start : place.end]))
    first, last, sentences = differences(file.text, place.start, quoted, found)
    lines = f"lines {first}-{last}" if last > first else f"line {first}"
    differed = f"These lines differed: {sentences}." if sentences else "Only blank lines differed."
    return FuzzyReplacement(
        Span(place.start, place.end, done.text),
        f"old_string is not in the file: {lines}, {_percent(score)} % alike, were replaced instead. "
        f"The parts of old_string that new_string keeps were left as they are in the file. {differed}",
        done.moved,
    )


def _replaced_range(
    lines: Sequence[str], numbers: Sequence[int], at: int, old: Sequence[SourceLine]
) -> tuple[int, int]:
    """Returns the offsets of the replaced text: the lines, with the blank lines around them that the old text has."""
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    past = at + len(old) - 1
    last = numbers[past - 1]
    before = numbers[at - 1] + 1 if at else 0
    after = numbers[past] if past < len(numbers) else len(lines)
    start = starts[max(before, numbers[at] - old[0].breaks)]
    if not old[-1].breaks:
        return start, starts[last] + len(lines[last].rstrip(_BLANK))
    return start, min(starts[-1] - 1, starts[min(after, last + old[-1].breaks)])


@lru_cache(1000)
def significant_tokens(line: str) -> list[str]:
    """Returns the tokens that must be equal: numbers, operators and negations, which change the meaning, and
    backslashes, which are escaping errors.
    """
    return [each.lower() for each in _SIGNIFICANT.findall(line)]


def is_short(wanted: Sequence[str]) -> bool:
    """Whether the text is so short that similarity alone is not sufficient."""
    return len(wanted) < _MIN_LINES or sum(map(len, wanted)) < _SHORT_CHARS


def _is_typo(wanted: Sequence[str], found: Sequence[str]) -> bool:
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


def _are_opposites(wanted: Sequence[str], found: Sequence[str]) -> bool:
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


def _fragments(text: str, old: str) -> list[Fragment]:
    """Returns the parts of lines that are similar to the old text, best first and without overlaps.

    Empty if comparing all of them takes too much work.
    """
    words = _WORD.findall(old)
    if "\n" in old or len(words) < 2 or len(old) > _MAX_CHARS:
        return []
    first, last = words[0], words[-1]
    head, tail = old[: old.index(first)], old[old.rindex(last) + len(last) :]
    starts = [match.start() - len(head) for match in re.finditer(_apart(first), text)]
    ends = [match.end() + len(tail) for match in re.finditer(_apart(last), text)]
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


def _apart(part: str) -> str:
    """Returns the pattern of the text where no word goes on before or after it."""
    before, after = (r"(?<!\w)" if _WORD.match(part) else ""), (r"(?!\w)" if _WORD.match(part[-1:]) else "")
    return f"{before}{re.escape(part)}{after}"


def _similar_fragments(text: str, old: str, start: int, ends: Sequence[int], tail: str) -> Iterator[Fragment]:
    for end in ends:
        there = text[start:end]
        if "\n" in there or not there.endswith(tail):
            continue
        score = Indel.normalized_similarity(old, there, score_cutoff=MIN_SIMILARITY - MARGIN)
        if score and significant_tokens(old) == significant_tokens(there) and not _are_opposites([old], [there]):
            yield start, end, score


def _without_overlaps(found: Sequence[Fragment]) -> list[Fragment]:
    """Keeps the best one of fragments that overlap."""
    kept: list[Fragment] = []
    for start, end, score in sorted(found, key=lambda each: (-each[2], each[0])):
        if all(end <= other[0] or other[1] <= start for other in kept):
            kept.append((start, end, score))
    return kept


def _slips(text: str, old: str) -> list[Fragment]:
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
    if others or significant_tokens(old) != significant_tokens(there) or _are_opposites([old], [there]):
        return False
    before, after = "".join(tokens[change.start : change.end]), "".join(change.tokens)
    words = before.isalpha() and after.isalpha() and min(len(before), len(after)) >= _TYPO_CHARS
    return words and before[0].lower() == after[0].lower() and not re.search(_apart(before), text)
