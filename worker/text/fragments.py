"""A part of a long line whose wording is nearly that of the old text: a sentence of a paragraph.

Its first and its last word have to be the same, so that it is certain where it begins and ends.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from rapidfuzz.distance import Indel

from worker.text.likeness import ALIKE, MARGIN, are_opposites, fixed_in, is_slip

_WORD = re.compile(r"\w+")
_MAX_CHARS = 4000
_MAX_PAIRS = 4000
"""Stretches compared before the search is given up."""
_WORK_CHARS = 200_000_000
"""Characters of the old text times those of each stretch, likewise."""

Fragment = tuple[int, int, float]
"""From where to where, and how much it is alike."""


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
