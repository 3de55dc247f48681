"""When two texts say the same in nearly the same words, and when what differs makes them two things."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from rapidfuzz.distance import Indel

from worker.text.line_merge import changes

ALIKE = 0.9
"""Of all characters of both sides, the share that is the same."""
MARGIN = 0.05
"""How much better than any other place the best one must be."""
MIN_CHARS = 12
"""Less is soon like something else."""
_MIN_LINES, _LITTLE_CHARS = 3, 40
"""With less, few words may differ, and only as slips of the pen do: there is little around them to be sure by."""
_WORDS_PER_SLIP = 8
_MIN_WORDS, _MANY_WORDS = 5, 20
_SLIP_CHARS, _SLIP = 4, 0.8
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_WORD = re.compile(r"\w+")
_FIXED = re.compile(
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
_OPPOSITE = ("un", "in", "im", "ir", "il", "dis", "non", "not", "de", "anti", "mis", "no", "never")
_MAX_CHARS = 4000
_MAX_PAIRS = 4000
"""Stretches compared before the search is given up."""
_WORK_CHARS = 200_000_000
"""Characters of the old text times those of each stretch, likewise."""
Fragment = tuple[int, int, float]
"""From where to where, and how much it is alike."""


def fixed_in(line: str) -> list[str]:
    """What has to be the same: another number, operator or negation is another place, another backslash a mistake."""
    return [each.lower() for each in _FIXED.findall(line)]


def is_little(wanted: Sequence[str]) -> bool:
    """Whether the text is so short that more than likeness is needed."""
    return len(wanted) < _MIN_LINES or sum(map(len, wanted)) < _LITTLE_CHARS


def is_slip(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Whether the few words of a short text differ only as slips do, so that nothing else can be meant."""
    words = sum(len(_WORD.findall(line)) for line in wanted)
    differing = 0
    for mine, theirs in zip(wanted, found, strict=True):
        tokens = _TOKEN.findall(mine)
        for change in changes(tokens, _TOKEN.findall(theirs)):
            before, after = "".join(tokens[change.start : change.end]), "".join(change.tokens)
            differing += bool((before + after).strip())
            has_words = bool(_WORD.search(before) or _WORD.search(after))
            certain = words >= _MANY_WORDS or (words >= _MIN_WORDS and _is_same_word(before.strip(), after.strip()))
            if has_words and not certain:
                return False
    return differing <= max(1, words // _WORDS_PER_SLIP)


def are_opposites(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Whether a word stands against the same one with a prefix that turns it round."""
    for mine, theirs in zip(wanted, found, strict=True):
        if mine == theirs:
            continue
        tokens = _TOKEN.findall(mine)
        for change in changes(tokens, _TOKEN.findall(theirs)):
            before, after = ("".join(each).lower() for each in (tokens[change.start : change.end], change.tokens))
            short, long = sorted((before, after), key=len)
            if short and any(_turned(short, long, prefix) for prefix in _OPPOSITE):
                return True
    return False


def _turned(short: str, long: str, prefix: str) -> bool:
    """``is_valid`` and ``is_invalid``, ``enabled`` and ``notEnabled``."""
    size = len(long) - len(short)
    if size not in (len(prefix), len(prefix) + 1):
        return False
    places = (at for at in range(len(short)) if long[: at + size] == short[:at] + long[at : at + size])
    return any(long[at : at + len(prefix)] == prefix and long[at + size :] == short[at:] for at in places)


def _is_same_word(before: str, after: str) -> bool:
    """A word more or less is a slip, and so is one that is spelt nearly the same."""
    if not before or not after:
        return " " not in before + after
    alike = Indel.normalized_similarity(before, after) >= _SLIP
    return alike and before[0] == after[0] and min(len(before), len(after)) >= _SLIP_CHARS


def fragments(text: str, old: str) -> list[Fragment]:
    """The stretches inside of lines that may be meant or be taken for it, best first; none of them overlap.

    Empty where looking at all of them takes too long.
    """
    words = _WORD.findall(old)
    if "\n" in old or len(words) < 2 or len(old) > _MAX_CHARS:
        return []
    first, last = words[0], words[-1]
    head, tail = old[: old.index(first)], old[old.rindex(last) + len(last) :]
    starts = [match.start() - len(head) for match in _whole(text, first)]
    ends = [match.end() + len(tail) for match in _whole(text, last)]
    found: list[Fragment] = []
    spread = int(len(old) * (1 - ALIKE + MARGIN) * 2) + 1
    pairs = 0
    for start in starts:
        if start < 0 or not text.startswith(head, start):
            continue
        low = bisect_left(ends, start + len(old) - spread)
        high = bisect_right(ends, start + len(old) + spread)
        pairs += high - low
        if pairs > _MAX_PAIRS or pairs * len(old) * len(old) > _WORK_CHARS:
            return []
        found += _alike(text, old, start, ends[low:high], tail)
    return _apart(found)


def _whole(text: str, word: str) -> Iterator[re.Match[str]]:
    return re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", text)


def _alike(text: str, old: str, start: int, ends: Sequence[int], tail: str) -> Iterator[Fragment]:
    for end in ends:
        there = text[start:end]
        if "\n" in there or not there.endswith(tail):
            continue
        score = Indel.normalized_similarity(old, there, score_cutoff=ALIKE - MARGIN)
        if score and fixed_in(old) == fixed_in(there) and not are_opposites([old], [there]):
            yield start, end, score


def _apart(found: Sequence[Fragment]) -> list[Fragment]:
    """The best of those that overlap."""
    kept: list[Fragment] = []
    for start, end, score in sorted(found, key=lambda each: (-each[2], each[0])):
        if all(end <= other[0] or other[1] <= start for other in kept):
            kept.append((start, end, score))
    return kept


def is_certain(text: str, old: str, fragment: Fragment) -> bool:
    """Whether so little differs that nothing else can be meant."""
    start, end, score = fragment
    return score >= ALIKE and is_slip([old], [text[start:end]])
