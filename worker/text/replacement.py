"""Replacing one text by another inside a file: exactly where possible, tolerantly only where it is certain (C01).

Tolerance never guesses: what differs must be one of the folds or a constant indentation, there must be one place,
and every part of the old text that the new text keeps is kept as the file has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, permutations
from typing import Protocol

from rapidfuzz.distance import Indel

from shared.errors import ErrorType, ToolError
from worker.text.folding import LINE_ENDS, LOOK_ALIKES, TRAILING_BLANKS, Fold, Folded
from worker.text.textfile import TextFile

_MAX_WOVEN = 5000
"""Characters up to which old and new text are compared character by character."""
_MAX_PLACES = 1000
"""Places counted of a text that is not unique."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the file and what comes in its place."""

    start: int
    end: int
    text: str


class _Search(Protocol):
    """One way to find the old text. ``every`` leaves out places that overlap another one."""

    def __call__(self, file: TextFile, old: str, new: str, *, every: bool) -> list[Span]: ...


@dataclass(frozen=True, slots=True)
class Replacement:
    """The whole new text, the line of each place, and what had to be overlooked to find it (None: nothing)."""

    text: str
    lines: tuple[int, ...]
    tolerated: str | None = None

    def report(self, path: str) -> str:
        """What was changed where, and what had to be overlooked to find it."""
        count = len(self.lines)
        lines = ", ".join(map(str, self.lines[:20])) + (", …" if count > 20 else "")
        places = f"1 place, line {lines}" if count == 1 else f"{count} places, lines {lines}"
        said = f"Successfully edited {path}: {places}."
        if self.tolerated:
            said += f" old_string did not match exactly: differences in {self.tolerated} were overlooked."
        return said


def replace(file: TextFile, old: str, new: str, *, every: bool) -> Replacement | None:
    """The replacement, or None where the old text is nowhere. Raises ToolError(EDIT_AMBIGUOUS)."""
    for name, search in _SEARCHES:
        sure = every and name in (None, LINE_ENDS.name)
        spans = search(file, old, new, every=sure)
        if len(spans) > 1 and not sure:
            raise _ambiguous(file.text, spans, name)
        if spans:
            return Replacement(_spliced(file.text, spans), _line_numbers(file.text, spans), name)
    return None


def find(file: TextFile, text: str) -> tuple[int, ...]:
    """The lines where the text begins, found the same way; empty where it is nowhere."""
    for _, search in _SEARCHES:
        if text and (spans := search(file, text, text, every=False)):
            return _line_numbers(file.text, spans)
    return ()


def _exactly(file: TextFile, old: str, new: str, *, every: bool) -> list[Span]:
    if old.startswith("\n") and "\r\n" in file.text:
        return []  # it would match the second half of a CRLF
    return [
        Span(at, at + len(old), _with_line_ends(new, _style(file, at, at + len(old))))
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
    style = _style(file, start, end)
    parts = [
        file.text[folded.origin(at + first) : folded.origin(at + last)]
        if same
        else _with_line_ends(new[new_first:new_last], style)
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


def _indented(file: TextFile, old: str, new: str, *, every: bool) -> list[Span]:
    """Places where the same lines stand with another, but constantly other, indentation."""
    folded = Folded(file.text, LINE_ENDS)
    wanted, fresh = (text.replace("\r\n", "\n").split("\n") for text in (old, new))
    closed = len(wanted) > 1 and not wanted[-1]
    if closed:
        wanted = wanted[:-1]
    bare = [line.strip(" \t") for line in wanted]
    if not any(bare):
        return []
    lines = folded.text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    spans: list[Span] = []
    for at in _runs([line.strip(" \t") for line in lines], bare):
        end = starts[at + len(wanted)] - (not closed)
        shifted = _shifted(wanted, lines[at : at + len(wanted)], fresh)
        if shifted is not None and end <= len(folded.text):
            start, end = folded.origin(starts[at]), folded.origin(end)
            spans.append(Span(start, end, _with_line_ends("\n".join(shifted), _style(file, start, end))))
    return spans


def _runs(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where the wanted lines stand one after the other."""
    size, rarest = len(wanted), max(range(len(wanted)), key=lambda at: len(wanted[at]))
    found = [at - rarest for at, line in enumerate(lines) if line == wanted[rarest]]
    return [at for at in found[:_MAX_PLACES] if at >= 0 and list(lines[at : at + size]) == list(wanted)]


def _shifted(wanted: Sequence[str], found: Sequence[str], fresh: Sequence[str]) -> list[str] | None:
    """The new lines indented as the file is, or None where no one rule leads from the wanted to the found lines."""
    pairs = [(_indent(a), _indent(b)) for a, b in zip(wanted, found, strict=True) if a.strip(" \t")]
    for rule in _rules(*pairs[0]):
        if all(rule(mine) == theirs for mine, theirs in pairs):
            moved = [line if not line.strip(" \t") else _moved(line, rule) for line in fresh]
            return None if None in moved else [line for line in moved if line is not None]
    return None


def _moved(line: str, rule: Callable[[str], str | None]) -> str | None:
    indent = _indent(line)
    moved = rule(indent)
    return None if moved is None else moved + line[len(indent) :]


def _rules(mine: str, theirs: str) -> list[Callable[[str], str | None]]:
    """Deeper, less deep, or in other units: tabs, two, four or eight blanks."""
    rules: list[Callable[[str], str | None]] = []
    if theirs.endswith(mine):
        rules.append(lambda indent: theirs[: len(theirs) - len(mine)] + indent)
    if mine.endswith(theirs):
        more = mine[: len(mine) - len(theirs)]
        rules.append(lambda indent: indent[len(more) :] if indent.startswith(more) else None)
    units = ("\t", " " * 4, " " * 2, " " * 8)
    return rules + [partial(_in_units, mine, theirs) for mine, theirs in permutations(units, 2)]


def _in_units(mine: str, theirs: str, indent: str) -> str | None:
    """The indentation in other units, or None where it is not made of whole ones."""
    count, rest = divmod(len(indent), len(mine))
    return None if rest or indent != mine * count else theirs * count


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


_SEARCHES: tuple[tuple[str | None, _Search], ...] = (
    (None, _exactly),
    (LINE_ENDS.name, _folding(LINE_ENDS)),
    (TRAILING_BLANKS.name, _folding(TRAILING_BLANKS)),
    ("indentation", _indented),
    (LOOK_ALIKES.name, _folding(LOOK_ALIKES)),
)


def _places(text: str, wanted: str, *, every: bool) -> list[int]:
    """Where the text stands. Unless ``every`` is replaced, places may overlap: "aa" stands twice in "aaa"."""
    places: list[int] = []
    at = text.find(wanted)
    while at >= 0 and (every or len(places) < _MAX_PLACES):
        places.append(at)
        at = text.find(wanted, at + (len(wanted) if every else 1))
    return places


def _spliced(text: str, spans: Sequence[Span]) -> str:
    parts: list[str] = []
    end = 0
    for span in spans:
        parts += (text[end : span.start], span.text)
        end = span.end
    return "".join([*parts, text[end:]])


def _style(file: TextFile, start: int, end: int) -> str:
    """The line end of the replaced stretch, or the file's where it has none."""
    stretch = file.text[start:end]
    return "\r\n" if "\r\n" in stretch else "\n" if "\n" in stretch else file.newline


def _with_line_ends(text: str, style: str) -> str:
    return text if style == "\n" else text.replace("\r\n", "\n").replace("\n", style)


def _line_numbers(text: str, spans: Sequence[Span]) -> tuple[int, ...]:
    numbers: list[int] = []
    line, end = 1, 0
    for span in spans:
        line += text.count("\n", end, span.start)
        end = span.start
        numbers.append(line)
    return tuple(numbers)


def _ambiguous(text: str, spans: Sequence[Span], name: str | None) -> ToolError:
    lines = _line_numbers(text, spans)
    shown = ", ".join(map(str, lines[:20])) + (", …" if len(lines) > 20 else "")
    count = f"{len(spans)}{' or more' * (len(spans) == _MAX_PLACES)}"
    but = f" (not exactly, but apart from {name})" if name else ""
    everywhere = ", or set replace_all=true to replace all of them" if name in (None, LINE_ENDS.name) else ""
    return ToolError(
        ErrorType.EDIT_AMBIGUOUS,
        f"old_string occurs {count} times{but}, on lines {shown}. "
        f"Nothing was changed. Add lines around it until it is unique{everywhere}.",
    )
