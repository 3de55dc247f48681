"""Replacing one text by another inside a file: exactly where possible, tolerantly only where it is certain (C01).

Tolerance never chooses: what differs must be one of the folds or a constant indentation, and there must be one place.
Only then the wording may differ, and but a little (``fuzzy``). Every part of the old text that the new text keeps is
kept as the file has it, and what was overlooked is always said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rapidfuzz.distance import Indel

from shared.errors import ErrorType, ToolError
from worker.text.folding import LINE_ENDS, LOOK_ALIKES, TRAILING_BLANKS, Fold, Folded
from worker.text.fuzzy import nearly
from worker.text.indentation import MAX_PLACES, indented
from worker.text.spans import Span, line_end, line_numbers, spliced, with_line_ends
from worker.text.textfile import TextFile

_MAX_WOVEN = 5000
"""Characters up to which old and new text are compared character by character."""
WORDING = "wording"
"""What is said to be tolerated where the lines are only nearly the same."""


class _Search(Protocol):
    """One way to find the old text. ``every`` leaves out places that overlap another one."""

    def __call__(self, file: TextFile, old: str, new: str, *, every: bool) -> list[Span]: ...


@dataclass(frozen=True, slots=True)
class Replacement:
    """The whole new text, the line of each place, and what had to be overlooked to find it (None: nothing).

    ``remark`` says more of it where that is not all there is to say.
    """

    text: str
    lines: tuple[int, ...]
    tolerated: str | None = None
    remark: str = ""

    def report(self, path: str) -> str:
        """What was changed where, and what had to be overlooked to find it."""
        count = len(self.lines)
        lines = ", ".join(map(str, self.lines[:20])) + (", …" if count > 20 else "")
        places = f"1 place, line {lines}" if count == 1 else f"{count} places, lines {lines}"
        said = f"Successfully edited {path}: {places}."
        if self.remark:
            said += f" {self.remark}"
        elif self.tolerated:
            said += f" old_string did not match exactly: differences in {self.tolerated} were overlooked."
        return said


def replace(file: TextFile, old: str, new: str, *, every: bool) -> Replacement | None:
    """The replacement, or None where the old text is nowhere. Raises ToolError(EDIT_AMBIGUOUS).

    ``every`` replaces all places that are the same but for line ends. Where anything else has to be overlooked there
    must be one place all the same, and the wording must not differ.
    """
    for name, search in _SEARCHES:
        sure = every and name in (None, LINE_ENDS.name)
        spans = search(file, old, new, every=sure)
        if len(spans) > 1 and not sure:
            raise _ambiguous(file.text, spans, name)
        if spans:
            return Replacement(spliced(file.text, spans), line_numbers(file.text, spans), name)
    if not every and (found := nearly(file, old, new)):
        spans = [found.span]
        return Replacement(spliced(file.text, spans), line_numbers(file.text, spans), WORDING, found.remark)
    return None


def find(file: TextFile, text: str) -> tuple[int, ...]:
    """The lines where the text begins, found the same way but for its wording; empty where it is nowhere."""
    for _, search in _SEARCHES:
        if text and (spans := search(file, text, text, every=False)):
            return line_numbers(file.text, spans)
    return ()


def _exactly(file: TextFile, old: str, new: str, *, every: bool) -> list[Span]:
    if old.startswith("\n") and "\r\n" in file.text:
        return []  # it would match the second half of a CRLF
    return [
        Span(at, at + len(old), with_line_ends(new, line_end(file, at, at + len(old))))
        for at in _places(file.text, old, every=every)
    ]


def _folding(fold: Fold) -> _Search:
    def search(file: TextFile, old: str, new: str, *, every: bool) -> list[Span]:
        wanted = Folded(old, fold).text
        if not wanted.strip() and (fold is not LINE_ENDS or not wanted):
            return []
        folded = Folded(file.text, fold)
        cut_short = old[-1:] in (" ", "\t") and fold is not LINE_ENDS
        return [
            _woven(file, folded, at, wanted, new.replace("\r\n", "\n"))
            for at in _places(folded.text, wanted, every=every)
            if not cut_short or folded.text[at + len(wanted) :][:1] in ("", "\n")
        ]

    return search


def _woven(file: TextFile, folded: Folded, at: int, old: str, new: str) -> Span:
    """The new text, in which all that it shares with the old one stays as it stands in the file."""
    start, end = folded.origin(at), folded.origin(at + len(old))
    style = line_end(file, start, end)
    parts = [
        file.text[folded.origin(at + first) : folded.origin(at + last)]
        if same
        else with_line_ends(new[new_first:new_last], style)
        for same, first, last, new_first, new_last in _shared(old, new)
    ]
    return Span(start, end, "".join(parts))


def _shared(old: str, new: str) -> list[tuple[bool, int, int, int, int]]:
    """Which stretches of old and new are the same."""
    if len(old) <= _MAX_WOVEN and len(new) <= _MAX_WOVEN:
        return [
            (step.tag == "equal", step.src_start, step.src_end, step.dest_start, step.dest_end)
            for step in Indel.opcodes(old, new)
        ]
    head = _common(old, new)
    tail = min(_common(old[::-1], new[::-1]), min(len(old), len(new)) - head)
    return [
        (True, 0, head, 0, head),
        (False, head, len(old) - tail, head, len(new) - tail),
        (True, len(old) - tail, len(old), len(new) - tail, len(new)),
    ]


def _common(first: str, second: str) -> int:
    length = min(len(first), len(second))
    return next((at for at in range(length) if first[at] != second[at]), length)


_SEARCHES: tuple[tuple[str | None, _Search], ...] = (
    (None, _exactly),
    (LINE_ENDS.name, _folding(LINE_ENDS)),
    (TRAILING_BLANKS.name, _folding(TRAILING_BLANKS)),
    ("indentation", indented),
    (LOOK_ALIKES.name, _folding(LOOK_ALIKES)),
)


def _places(text: str, wanted: str, *, every: bool) -> list[int]:
    """Where the text stands. Unless ``every`` is replaced, places may overlap: "aa" stands twice in "aaa"."""
    places: list[int] = []
    at = text.find(wanted)
    while at >= 0 and (every or len(places) < MAX_PLACES):
        places.append(at)
        at = text.find(wanted, at + (len(wanted) if every else 1))
    return places


def _ambiguous(text: str, spans: Sequence[Span], name: str | None) -> ToolError:
    lines = line_numbers(text, spans)
    shown = ", ".join(map(str, lines[:20])) + (", …" if len(lines) > 20 else "")
    count = f"{len(spans)}{' or more' * (len(spans) == MAX_PLACES)}"
    but = f" (not exactly, but apart from {name})" if name else ""
    everywhere = ", or set replace_all=true to replace all of them" if name in (None, LINE_ENDS.name) else ""
    return ToolError(
        ErrorType.EDIT_AMBIGUOUS,
        f"old_string occurs {count} times{but}, on lines {shown}. "
        f"Nothing was changed. Add lines around it until it is unique{everywhere}.",
    )
