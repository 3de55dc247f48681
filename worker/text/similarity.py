"""Similarity of two texts, and the differences that matter whatever the similarity: numbers, operators, negations."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from rapidfuzz.distance import OSA, Indel

from .line_merge import changes

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
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
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
        tokens = _TOKEN.findall(mine)
        for change in changes(tokens, _TOKEN.findall(theirs)):
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
        tokens = _TOKEN.findall(mine)
        for change in changes(tokens, _TOKEN.findall(theirs)):
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
    tokens = _TOKEN.findall(old)
    (change, *others) = changes(tokens, _TOKEN.findall(there))
    if others or significant_tokens(old) != significant_tokens(there) or are_opposites([old], [there]):
        return False
    before, after = "".join(tokens[change.start : change.end]), "".join(change.tokens)
    words = before.isalpha() and after.isalpha() and min(len(before), len(after)) >= _TYPO_CHARS
    return words and before[0].lower() == after[0].lower() and not re.search(_apart(before), text)


def is_certain(text: str, old: str, fragment: Fragment) -> bool:
    """Whether the fragment is similar enough and differs only by typos."""
    start, end, score = fragment
    return score >= MIN_SIMILARITY and is_typo([old], [text[start:end]])
