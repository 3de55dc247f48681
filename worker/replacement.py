"""Replacing one text by another inside a file: exactly where possible, tolerantly only where it is certain (C01).

Tolerance never guesses: what differs must be one of the folds or a constant indentation, there must be one place,
and every part of the old text that the new text keeps is kept as the file has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Indel

from shared.errors import ErrorType, ToolError
from worker.folding import LINE_ENDS, LOOK_ALIKES, TRAILING_BLANKS, Fold, Folded
from worker.textfile import TextFile

_MAX_WOVEN = 20_000
"""Characters up to which old and new text are compared character by character."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the file and what comes in its place."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Replacement:
    """The whole new text, the line of each place, and what had to be overlooked to find it (None: nothing)."""

    text: str
    lines: tuple[int, ...]
    tolerated: str | None = None


def replace(file: TextFile, old: str, new: str, *, every: bool) -> Replacement | None:
    """The replacement, or None where the old text is nowhere. Raises ToolError(EDIT_AMBIGUOUS)."""
    for name, search in _SEARCHES:
        spans = search(file, old, new)
        if not spans:
            continue
        sure = every and name in (None, LINE_ENDS.name)
        if sure:
            spans = _apart(spans)
        if len(spans) > 1 and not sure:
            raise _ambiguous(file.text, spans, name)
        return Replacement(_spliced(file.text, spans), _line_numbers(file.text, spans), name)
    return None


def find(file: TextFile, text: str) -> tuple[int, ...]:
    """The lines where the text begins, found the same way; empty where it is nowhere."""
    for _, search in _SEARCHES:
        if text and (spans := search(file, text, text)):
            return _line_numbers(file.text, spans)
    return ()


def _exactly(file: TextFile, old: str, new: str) -> list[Span]:
    if old.startswith("\n") and "\r\n" in file.text:
        return []  # it would match the second half of a CRLF
    return [
        Span(at, at + len(old), _with_line_ends(new, _style(file, at, at + len(old)))) for at in _places(file.text, old)
    ]


def _folding(fold: Fold) -> Callable[[TextFile, str, str], list[Span]]:
    def search(file: TextFile, old: str, new: str) -> list[Span]:
        wanted = Folded(old, fold).text
        if not wanted.strip() and (fold is not LINE_ENDS or not wanted):
            return []
        folded = Folded(file.text, fold)
        cut_short = old[-1:] in (" ", "\t") and fold is not LINE_ENDS
        return [
            _woven(file, folded, at, wanted, new.replace("\r\n", "\n"))
            for at in _places(folded.text, wanted)
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


def _indented(file: TextFile, old: str, new: str) -> list[Span]:
    """Places where the same lines stand with another, but constantly other, indentation."""
    folded = Folded(file.text, LINE_ENDS)
    wanted, fresh = (text.replace("\r\n", "\n").split("\n") for text in (old, new))
    closed = wanted[-1] == "" and len(wanted) > 1
    if closed:
        wanted = wanted[:-1]
    lines = folded.text.split("\n")
    bare = [line.strip(" \t") for line in lines]
    bare_wanted = [line.strip(" \t") for line in wanted]
    if not any(bare_wanted) or (closed and fresh[-1] != ""):
        return []
    spans: list[Span] = []
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for at in range(len(lines) - len(wanted) + 1):
        if bare[at] != bare_wanted[0] or bare[at : at + len(wanted)] != bare_wanted:
            continue
        shifted = _shifted(wanted, lines[at : at + len(wanted)], fresh)
        if shifted is None:
            continue
        end = min(starts[at + len(wanted)] - (not closed), len(folded.text))
        start, end = folded.origin(starts[at]), folded.origin(end)
        spans.append(Span(start, end, _with_line_ends("\n".join(shifted), _style(file, start, end))))
    return spans


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
    """Deeper, less deep, blanks for tabs, tabs for blanks."""
    rules: list[Callable[[str], str | None]] = []
    if theirs.endswith(mine):
        rules.append(lambda indent: theirs[: len(theirs) - len(mine)] + indent)
    if mine.endswith(theirs):
        more = mine[: len(mine) - len(theirs)]
        rules.append(lambda indent: indent[len(more) :] if indent.startswith(more) else None)
    for width in (4, 2, 8):
        rules.append(lambda indent, unit=" " * width: indent.replace(unit, "\t"))
        rules.append(lambda indent, unit=" " * width: indent.replace("\t", unit))
    return rules


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


_SEARCHES: tuple[tuple[str | None, Callable[[TextFile, str, str], list[Span]]], ...] = (
    (None, _exactly),
    (LINE_ENDS.name, _folding(LINE_ENDS)),
    (TRAILING_BLANKS.name, _folding(TRAILING_BLANKS)),
    ("indentation", _indented),
    (LOOK_ALIKES.name, _folding(LOOK_ALIKES)),
)


def _places(text: str, wanted: str) -> list[int]:
    """Every place, overlapping ones too: "aa" stands twice in "aaa", and which is meant is not certain."""
    return [match.start() for match in re.finditer(f"(?={re.escape(wanted)})", text)]


def _apart(spans: list[Span]) -> list[Span]:
    kept: list[Span] = []
    for span in spans:
        if not kept or span.start >= kept[-1].end:
            kept.append(span)
    return kept


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
    but = f" (not exactly, but apart from {name})" if name else ""
    everywhere = ", or set replace_all=true to replace all of them" if name in (None, LINE_ENDS.name) else ""
    return ToolError(
        ErrorType.EDIT_AMBIGUOUS,
        f"old_string occurs {len(spans)} times{but}, on lines {shown}. "
        f"Nothing was changed. Add lines around it until it is unique{everywhere}.",
    )
