"""The ways to find a text in a file, from the exact one to the most tolerant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from worker.text.folding import BLANK_RUNS, LINE_ENDS, LOOK_ALIKES, TRAILING_BLANKS, Fold, Folded
from worker.text.indentation import shift_between
from worker.text.merging import lines_of

MAX_PLACES = 1000
"""Places counted of a text that is not unique."""
Place = tuple[int, int]
"""From where to where in the file's text."""
_BLANK = " \t\r"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Differences that are overlooked. ``indentation`` compares whole lines, however deep they stand."""

    folds: tuple[Fold, ...] = ()
    indentation: bool = False

    @property
    def name(self) -> str | None:
        """What the model is told was overlooked; None where nothing was."""
        names = [fold.name for fold in self.folds if fold is not TRAILING_BLANKS or self.folds == (TRAILING_BLANKS,)]
        return " and ".join([*["indentation"] * self.indentation, *names]) or None

    @property
    def is_literal(self) -> bool:
        """Whether nothing that can be seen is overlooked."""
        return not self.indentation and self.folds in ((), (LINE_ENDS,))

    @property
    def shows(self) -> bool:
        """Whether something inside of lines, or before them, is overlooked, so that what is written must be shown."""
        return self.indentation or self.folds not in ((), (LINE_ENDS,), (TRAILING_BLANKS,))

    @property
    def needs_odd_characters(self) -> bool:
        return LOOK_ALIKES in self.folds

    def places(self, text: str, old: str, *, every: bool) -> list[Place]:
        """Where the old text stands; ``every`` leaves out places that overlap another one."""
        if self.needs_odd_characters and text.isascii() and old.isascii():
            return []
        if self.indentation:
            return _of_lines(text, old, self.folds)
        return _folded(text, old, self.folds, every=every) if self.folds else _exact(text, old, every=every)


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


def _exact(text: str, old: str, *, every: bool) -> list[Place]:
    if old.startswith("\n") and "\r\n" in text:
        return []  # it would match the second half of a CRLF
    return [(at, at + len(old)) for at in starts_of(text, old, every=every)]


def _folded(text: str, old: str, folds: Sequence[Fold], *, every: bool) -> list[Place]:
    wanted = Folded(old, *folds).text
    literal = LINE_ENDS in folds
    if not wanted or (not literal and not wanted.strip()):
        return []
    folded = Folded(text, *folds)
    cut_short = old[-1:] in (" ", "\t") and not literal
    opens = wanted[0] == "\n" and old[0] in (" ", "\t")  # a line of blanks, and not the end of any other line
    return [
        (folded.origin(at), folded.origin(at + len(wanted)))
        for at in starts_of(folded.text, wanted, every=every)
        if not (opens and folded.text[at - 1 : at] not in ("", "\n"))
        and not (cut_short and folded.text[at + len(wanted) :][:1] not in ("", "\n"))
        and not (folded.splits(at) or folded.splits(at + len(wanted)))
    ]


def _of_lines(text: str, old: str, folds: Sequence[Fold]) -> list[Place]:
    """Places where the lines of the old text stand with another, constantly other, indentation."""
    wanted = _bare(old, folds)
    closed = len(wanted) > 1 and not old.endswith((" ", "\t")) and not wanted[-1]
    if closed:
        wanted = wanted[:-1]
    if not any(wanted):
        return []
    raw = text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in raw)]
    quoted = lines_of(old)
    places: list[Place] = []
    for at in _runs(_bare(text, folds), wanted):
        end = starts[at + len(wanted)] - (0 if closed else 2 if raw[at + len(wanted) - 1].endswith("\r") else 1)
        if end > len(text):
            continue
        found = lines_of(text[starts[at] : end])
        if len(found) == len(quoted) and shift_between(quoted, found):
            places.append((starts[at], end))
    return places


def _bare(text: str, folds: Sequence[Fold]) -> list[str]:
    return [line.strip(_BLANK) for line in Folded(text, *folds).text.split("\n")]


def _runs(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where the wanted lines stand one after the other."""
    size, rarest = len(wanted), max(range(len(wanted)), key=lambda at: len(wanted[at]))
    found = [at - rarest for at, line in enumerate(lines) if line == wanted[rarest]]
    return [at for at in found[:MAX_PLACES] if at >= 0 and list(lines[at : at + size]) == list(wanted)]


def starts_of(text: str, wanted: str, *, every: bool) -> list[int]:
    """Where the text stands. Unless ``every`` is replaced, places may overlap: "aa" stands twice in "aaa"."""
    places: list[int] = []
    at = text.find(wanted)
    while at >= 0 and (every or len(places) < MAX_PLACES):
        places.append(at)
        at = text.find(wanted, at + (len(wanted) if every else 1))
    return places
