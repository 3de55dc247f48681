"""The search for a text in a file, from exact matches to the most tolerant ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from .indentation import shift_between
from .merge import split_source
from .normalization import (
    BLANK_RUNS,
    LINE_ENDS,
    LOOK_ALIKES,
    TRAILING_BLANKS,
    Normalization,
    NormalizedText,
)

MAX_MATCHES = 1000
"""Matches counted of a text that is not unique."""
TextRange = tuple[int, int]
"""Start and end offset in the file's text."""
_BLANK = " \t\r"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The differences that a search ignores. ``indentation`` compares whole lines, with any constant indentation."""

    normalizations: tuple[Normalization, ...] = ()
    indentation: bool = False

    @property
    def name(self) -> str | None:
        """The ignored differences, for messages; None for an exact search."""
        names = [
            normalization.name
            for normalization in self.normalizations
            if normalization is not TRAILING_BLANKS or self.normalizations == (TRAILING_BLANKS,)
        ]
        return " and ".join([*["indentation"] * self.indentation, *names]) or None

    @property
    def is_literal(self) -> bool:
        """Whether only line ends may differ."""
        return not self.indentation and self.normalizations in ((), (LINE_ENDS,))

    @property
    def is_visible(self) -> bool:
        """Whether differences inside or before lines are ignored, so that the written lines must be shown."""
        return self.indentation or self.normalizations not in ((), (LINE_ENDS,), (TRAILING_BLANKS,))

    @property
    def needs_non_ascii(self) -> bool:
        return LOOK_ALIKES in self.normalizations

    def matches(self, text: str, old: str, *, every: bool) -> list[TextRange]:
        """Returns the ranges of all matches; with ``every`` without those that overlap another one."""
        if self.needs_non_ascii and text.isascii() and old.isascii():
            return []
        if self.indentation:
            return _find_indented(text, old, self.normalizations)
        return (
            _find_normalized(text, old, self.normalizations, every=every)
            if self.normalizations
            else _find_exact(text, old, every=every)
        )


TOLERANCES = (
    Tolerance(),
    Tolerance((LINE_ENDS,)),
    Tolerance((TRAILING_BLANKS,)),
    Tolerance(indentation=True),
    Tolerance((LOOK_ALIKES,)),
    Tolerance((TRAILING_BLANKS, BLANK_RUNS)),
    Tolerance((LOOK_ALIKES, TRAILING_BLANKS, BLANK_RUNS)),
    Tolerance((LOOK_ALIKES,), indentation=True),
    Tolerance((TRAILING_BLANKS, BLANK_RUNS), indentation=True),
    Tolerance((LOOK_ALIKES, TRAILING_BLANKS, BLANK_RUNS), indentation=True),
)


def _find_exact(text: str, old: str, *, every: bool) -> list[TextRange]:
    if old.startswith("\n") and "\r\n" in text:
        return []  # it would match the second half of a CRLF
    return [(at, at + len(old)) for at in find_starts(text, old, every=every)]


def _find_normalized(text: str, old: str, normalizations: Sequence[Normalization], *, every: bool) -> list[TextRange]:
    wanted = NormalizedText(old, *normalizations).text
    literal = LINE_ENDS in normalizations
    if not wanted or (not literal and not wanted.strip()):
        return []
    normalized = NormalizedText(text, *normalizations)
    cut_short = old[-1:] in (" ", "\t") and not literal
    opens = wanted[0] == "\n" and old[0] in (" ", "\t")  # matches a line of blanks, but not the end of another line
    return [
        (normalized.original_offset(at), normalized.original_offset(at + len(wanted)))
        for at in find_starts(normalized.text, wanted, every=every)
        if not (opens and normalized.text[at - 1 : at] not in ("", "\n"))
        and not (cut_short and normalized.text[at + len(wanted) :][:1] not in ("", "\n"))
        and not (normalized.splits(at) or normalized.splits(at + len(wanted)))
    ]


def _find_indented(text: str, old: str, normalizations: Sequence[Normalization]) -> list[TextRange]:
    """Returns the ranges that have the lines of the old text, with a constant shift of the indentation."""
    wanted = _stripped_lines(old, normalizations)
    closed = len(wanted) > 1 and not old.endswith((" ", "\t")) and not wanted[-1]
    if closed:
        wanted = wanted[:-1]
    if not any(wanted):
        return []
    raw = text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in raw)]
    quoted = split_source(old)
    matches: list[TextRange] = []
    for at in _find_sequences(_stripped_lines(text, normalizations), wanted):
        end = starts[at + len(wanted)] - (0 if closed else 2 if raw[at + len(wanted) - 1].endswith("\r") else 1)
        if end > len(text):
            continue
        found = split_source(text[starts[at] : end])
        if len(found) == len(quoted) and shift_between(quoted, found):
            matches.append((starts[at], end))
    return matches


def _stripped_lines(text: str, normalizations: Sequence[Normalization]) -> list[str]:
    return [line.strip(_BLANK) for line in NormalizedText(text, *normalizations).text.split("\n")]


def _find_sequences(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Returns the indexes at which the wanted lines occur consecutively."""
    size, rarest = len(wanted), max(range(len(wanted)), key=lambda at: len(wanted[at]))
    found = [at - rarest for at, line in enumerate(lines) if line == wanted[rarest]]
    return [at for at in found[:MAX_MATCHES] if at >= 0 and list(lines[at : at + size]) == list(wanted)]


def find_starts(text: str, wanted: str, *, every: bool) -> list[int]:
    """Returns the offsets of all occurrences. Unless ``every``, they may overlap: "aa" occurs twice in "aaa"."""
    matches: list[int] = []
    at = text.find(wanted)
    while at >= 0 and (every or len(matches) < MAX_MATCHES):
        matches.append(at)
        at = text.find(wanted, at + (len(wanted) if every else 1))
    return matches
