"""When two texts say the same in nearly the same words, and when what differs makes them two things."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
