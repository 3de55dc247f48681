"""The text to write in a place of a file, also where the quoted lines only resemble those of the file.

Also the report of an edit: where it was made, which differences were ignored, and what was written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise, permutations

from ...shared.errors import ErrorType, ToolError
from ...shared.text import clip
from .diff import compare
from .merge import Merge, SourceLine, bracket_balance, split_source
from .textfile import TextFile, number_lines

_SHOWN, _SHOWN_CHARS = 5, 160
"""Differing lines that are shown, and characters of each."""
_WRITTEN, _WRITTEN_CHARS = 40, 300
"""Written lines that are shown, and characters of each."""
_CHARS = 160
_WORD = re.compile(r"\w")
_UNITS = ("\t", " " * 4, " " * 2, " " * 8)
_INDENT = re.compile(r"^[ \t]+(?=[^ \t\r\n])", re.MULTILINE)
_WIDTHS = (2, 3, 4)
"""Spaces of one indentation step. A larger common indentation may be several steps."""
_OPENER = re.compile(r"[:{(\[]$")
_MAX_LINES = 10_000
"""Lines of a file that are examined to find out how it is indented."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of the file's text, and the text that replaces it."""

    start: int
    end: int
    text: str


def splice(text: str, spans: Sequence[Span]) -> str:
    """Returns the text with all spans replaced; they must be in order and not overlap."""
    parts: list[str] = []
    end = 0
    for span in spans:
        parts += (text[end : span.start], span.text)
        end = span.end
    return "".join([*parts, text[end:]])


def line_start(text: str, at: int) -> int:
    """Returns the offset of the start of the line that contains ``at``."""
    return text.rfind("\n", 0, at) + 1


def line_stop(text: str, at: int) -> int:
    """Returns the offset of the end of the line that contains ``at``, before its line end."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end - (end > at and text[end - 1 : end] == "\r")


def line_numbers(text: str, spans: Sequence[Span]) -> tuple[int, ...]:
    """Returns the numbers of the lines in which the spans begin; the first line is 1."""
    numbers: list[int] = []
    line, end = 1, 0
    for span in spans:
        line += text.count("\n", end, span.start)
        end = span.start
        numbers.append(line)
    return tuple(numbers)


def line_end(file: TextFile, start: int, end: int) -> str:
    """Returns the line end used in a range of the file, or the file's own if the range has none."""
    stretch = file.text[start:end]
    return "\r\n" if "\r\n" in stretch else "\n" if "\n" in stretch else file.newline


def with_line_ends(text: str, style: str) -> str:
    """Returns the text with CRLF line ends if ``style`` is CRLF, else unchanged."""
    return text if style == "\n" else text.replace("\r\n", "\n").replace("\n", style)


@dataclass(frozen=True, slots=True)
class Replacement:
    """The whole new text, the line number of each place, and the name of the differences ignored (None: none).

    ``remark`` replaces the sentence about ignored differences in the report.
    """

    text: str
    lines: tuple[int, ...]
    tolerated: str | None = None
    remark: str = ""
    moved: bool = field(default=False, compare=False)
    """Whether the new text was re-indented."""
    repeated: bool = field(default=False, compare=False)
    """Whether the new text repeated text around the place, which was not written twice."""
    written: str = field(default="", compare=False)
    """The lines as they are in the file now, if they may differ from the new text."""

    def report(self, path: str) -> str:
        """Returns the report for the model: the places, the differences ignored, and what was written."""
        count = len(self.lines)
        lines = ", ".join(map(str, self.lines[:20])) + (", …" if count > 20 else "")
        places = f"1 place, line {lines}" if count == 1 else f"{count} places, lines {lines}"
        report = f"Successfully edited {path}: {places}."
        if self.remark:
            report += f" {self.remark}"
        elif self.tolerated:
            report += f" old_string did not match exactly: differences in {self.tolerated} were ignored."
        if self.moved:
            report += " new_string was re-indented to match the file."
        if self.repeated:
            report += " new_string repeats text around its place in the file, which was not written twice."
        return f"{report}\n{self.written}" if self.written else report


def differences(text: str, start: int, old: Sequence[SourceLine], found: Sequence[SourceLine]) -> tuple[int, int, str]:
    """Returns the first and the last line number of a place, and a clause about each of the first lines that differ."""
    number = text.count("\n", 0, start) + 1 + found[0].breaks
    first, last = number, number
    clauses: list[str] = []
    for mine, theirs in zip(old[1:], found[1:], strict=True):
        if mine.text != theirs.text:
            was, quoted = clip(theirs.text, _SHOWN_CHARS), clip(mine.text, _SHOWN_CHARS)
            clauses.append(f"line {number} of the file was {was!r}, not {quoted!r}")
        last = number
        number += theirs.breaks
    more = f"; and {len(clauses) - _SHOWN} more" if len(clauses) > _SHOWN else ""
    return first, last, "; ".join(clauses[:_SHOWN]) + more


def show_lines(text: str, spans: Sequence[Span]) -> str:
    """Returns the lines of the places as they are after the edit, numbered."""
    parts: list[str] = []
    room = _WRITTEN
    moved = 0
    number, counted = 1, 0
    for span in spans:
        if room <= 0:
            break
        head = line_start(text, span.start)
        tail = text.find("\n", span.end)
        number += text.count("\n", counted, head)
        counted = head
        ended = span.text.endswith("\n") or (not span.text and head == span.start)
        rest = "" if ended else text[span.end : len(text) if tail < 0 else tail]
        lines = (text[head : span.start] + span.text + rest).split("\n")
        lines = lines[:-1] if ended else lines
        shown = [clip(line.removesuffix("\r"), _WRITTEN_CHARS) for line in lines[:room]]
        parts += [number_lines(shown, number + moved)] if shown else []
        parts += ["…"] * (len(lines) > room)
        room -= len(lines)
        moved += span.text.count("\n") - text.count("\n", span.start, span.end)
    return "The lines are now:\n" + "\n".join(parts) if parts else ""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The text to write, and whether it was re-indented."""

    text: str
    moved: bool = False


def rewrite(file: TextFile, place: tuple[int, int], old: str, new: str) -> Rewrite | None:
    """Computes the text to write in the place that was found for the old text.

    Returns:
        The new text merged with the file's lines; None if its indentation is not certain.

    Raises:
        ToolError: EDIT_NOT_FOUND if the edit would lose text in which the file differs from the old text.
    """
    start, end = place
    found = split_source(file.text[start:end])
    quoted, asked = (split_source(text.replace("\r\n", "\n")) for text in (old, new))
    if len(quoted) != len(found):
        return None
    fresh = _reindent(file.text, quoted, found, asked)
    if fresh and len(quoted) == 2:
        before = file.text[line_start(file.text, start) : start]
        fresh = _hang(file.text, before[: len(before) - len(before.lstrip(" \t"))], fresh)
    if fresh is None:
        return None
    if twice := _repeated_neighbor(file.text, place, quoted, asked):
        raise ToolError(
            ErrorType.EDIT_NOT_FOUND,
            f"old_string is not exactly in the file, and new_string adds the line {clip(twice, _CHARS)!r}, "
            "which is already beside the most similar place. Nothing was changed. "
            "Copy old_string exactly from the file.",
        )
    there = [replace(mine, indent=theirs.indent) for mine, theirs in zip(quoted, found, strict=True)]
    text = Merge(there, found, fresh, line_end(file, start, end)).text()
    if text is not None:
        return Rewrite(text, fresh != asked)
    first, last, sentences = differences(file.text, start, quoted, found)
    raise ToolError(
        ErrorType.EDIT_NOT_FOUND,
        f"old_string is not exactly in the file. Lines {first}-{last} are similar to it, but new_string changes the "
        f"text that differs there, so the intended text is not certain: {sentences}. "
        "Nothing was changed. Copy old_string exactly from the file, and keep in new_string what has to stay.",
    )


def _repeated_neighbor(
    text: str, place: tuple[int, int], old: Sequence[SourceLine], new: Sequence[SourceLine]
) -> str | None:
    """Returns the first or last new line if it is also beside the place, and not in the old text; else None."""
    if len(new) < 2 or len(old) < 2:
        return None
    (*above, head), rest = text[: place[0]].split("\n"), text[place[1] :].split("\n")
    if not text[: place[1]].endswith("\n"):
        rest = rest[1:] if not rest[0].strip() else []
    before = _first_non_blank(reversed(above)) if not head.strip() else ""
    quoted = {line.text for line in old}
    for beside, line in ((before, new[1].text), (_first_non_blank(rest), new[-1].text)):
        # lines of brackets alone may repeat, unless the new text opens or closes one more of them than the old
        old_brackets, new_brackets = (
            bracket_balance("\n".join(each.text for each in lines))[1] for lines in (old, new)
        )
        counts = _WORD.search(line) or old_brackets != new_brackets
        if beside == line and line not in quoted and counts:
            return line
    return None


def _first_non_blank(lines: Iterable[str]) -> str:
    return next((line.strip() for line in lines if line.strip()), "")


@dataclass(frozen=True, slots=True)
class IndentShift:
    """A mapping of indentations: ``source`` becomes ``target``, deeper and shallower ones move along.

    ``units`` are the steps of both sides, where they differ.
    """

    source: str
    target: str
    units: tuple[str, str] | None = None

    def __call__(self, indent: str) -> str | None:
        """Returns the shifted indentation; None if it would be negative or is not made of whole steps."""
        if indent.startswith(self.source):
            more = self._step(indent[len(self.source) :])
            return None if more is None else self.target + more
        less = self._step(self.source[len(indent) :]) if self.source.startswith(indent) else None
        return self.target.removesuffix(less) if less and self.target.endswith(less) else None

    def _step(self, indent: str) -> str | None:
        if self.units is None:
            return indent
        source, target = self.units
        count, rest = divmod(len(indent), len(source))
        return None if rest or indent != source * count else target * count


def shift_between(old: Sequence[SourceLine], found: Sequence[SourceLine]) -> IndentShift | None:
    """Returns the shift from the old lines to those of the file, or None."""
    pairs = [(mine.indent, theirs.indent) for mine, theirs in zip(old[1:], found[1:], strict=True)]
    fitting = (IndentShift(*pairs[0], units) for units in (None, *permutations(_UNITS, 2)) if pairs)
    return next((shift for shift in fitting if all(shift(mine) == theirs for mine, theirs in pairs)), None)


def _reindent(
    file: str, old: Sequence[SourceLine], found: Sequence[SourceLine], new: Sequence[SourceLine]
) -> list[SourceLine] | None:
    """Returns the new lines with the indentation of the place in the file, or None where it is not certain.

    If the old lines have the file's indentation, the new lines are not changed. Otherwise the first new line gets the
    indentation of the found line with the same text, or else of the first found line, and the others keep theirs
    relative to it: a model that quoted lines without their indentation may have written the new ones with or without.
    """
    if all(mine.indent == theirs.indent for mine, theirs in zip(old, found, strict=True)) or len(new) == 1:
        return list(new)
    if len(old) == 2 and not old[1].indent + new[1].indent and not is_shallow(found[1].indent, new):
        return [new[0], replace(new[1], indent=found[1].indent), *new[2:]]  # quoted from inside the line
    shift = shift_between(old, found)
    if shift is None:
        return None
    characters = _characters(line.indent for line in found) or _characters(_indents(file))
    same = {theirs.indent for mine, theirs in zip(old, found, strict=True) if mine.text == new[1].text}
    anchor = same.pop() if len(same) == 1 else found[1].indent
    if shift.units is None:
        readings = [
            _reindent_by(anchor, new, units, characters)
            for units in (None, *_candidate_units(file, characters, old, found, new))
        ]
        return next((reading for reading in readings if reading), None)
    mine, theirs = (_reindent_by(anchor, new, units, characters) for units in (shift.units, None))
    if not mine or not theirs or mine == theirs:
        return mine or theirs
    # the new lines use the steps of the old lines or those of the file: unchanged lines decide, or the smallest step
    depths = sorted({len(line.indent) for line in new[1:]})
    least = min((deeper - depth for depth, deeper in pairwise(depths)), default=0)
    scores = [(_unmoved_count(found, old, mine), least == len(shift.units[0]))]
    scores += [(_unmoved_count(found, old, theirs), least == len(shift.units[1]))]
    return None if scores[0] == scores[1] else mine if scores[0] > scores[1] else theirs


def is_shallow(margin: str, new: Sequence[SourceLine]) -> bool:
    """Whether the second of the new lines, for a place inside a line of that indentation, is not as deep as the first
    is there, or not deeper although the first opens a block; or a later one is less deep than the first.
    """
    first, *others = new[1:] or [SourceLine("", "", "")]
    deeper = len(margin) + bool(_OPENER.search(first.text))
    return bool(others) and (len(others[0].indent) < deeper or any(len(line.indent) < len(margin) for line in others))


def _hang(file: str, margin: str, new: Sequence[SourceLine]) -> list[SourceLine] | None:
    """Returns the new lines for a place inside a line of the indentation ``margin``, or None where it is not certain.

    A model that quoted a part of one line may have written the lines after the first as if that began without
    indentation: then they get the line's, too.
    """
    if not margin or len(new) < 3 or new[1].indent or not is_shallow(margin, new):
        return list(new)
    characters = {*margin}
    units = _candidate_units(file, characters, (), [replace(new[1], indent=margin)], new)
    readings = (_reindent_by(margin, new, each, characters) for each in (None, *units))
    moved = next((reading for reading in readings if reading), None)
    return moved and [new[0], new[1], *moved[2:]]


def _reindent_by(
    anchor: str, new: Sequence[SourceLine], units: tuple[str, str] | None, characters: set[str]
) -> list[SourceLine] | None:
    """Returns the new lines shifted by ``units``; None if their indentation does not consist of such steps."""
    shift = IndentShift(new[1].indent, anchor, units)
    lines: list[SourceLine] = []
    for line in new[1:]:
        indent = shift(line.indent)
        if indent is None or (characters and not _characters([indent]) <= characters):
            return None
        lines.append(replace(line, indent=indent))
    return [new[0], *lines]


def _unmoved_count(found: Sequence[SourceLine], old: Sequence[SourceLine], new: Sequence[SourceLine]) -> int:
    """Returns how many of the lines that are unchanged, apart from their indentation, keep that of the file."""
    blocks = compare([line.text for line in old], [line.text for line in new])
    pairs = (pair for block in blocks if block.same for pair in zip(block.old, block.new, strict=True))
    return sum(found[at].indent == new[number].indent for at, number in pairs)


def _candidate_units(
    file: str, characters: set[str], old: Sequence[SourceLine], found: Sequence[SourceLine], new: Sequence[SourceLine]
) -> list[tuple[str, str]]:
    """Returns the possible steps where the model indents with spaces and the file with tabs, or vice versa."""
    if characters == {"\t"}:
        mine = _unit([line.indent for line in [*old, *new]])
        return [(mine, "\t")] if mine else []
    theirs = _unit([line.indent for line in found]) or _unit(_indents(file))
    return [("\t", theirs)] if theirs else []


def _unit(indents: Iterable[str]) -> str:
    """Returns the step that all indentations consist of, in spaces; "" if there is none."""
    indented = [indent for indent in indents if indent]
    if not indented or _characters(indented) != {" "}:
        return ""
    size = math.gcd(*map(len, indented))
    return " " * size if size in _WIDTHS else ""


def _indents(text: str) -> list[str]:
    return [match[0] for match in islice(_INDENT.finditer(text), _MAX_LINES)]


def _characters(indents: Iterable[str]) -> set[str]:
    return {sign for indent in indents for sign in indent}
