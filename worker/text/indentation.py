"""Indentation: the constant shift between quoted lines and those of a file, and its application to new lines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise, permutations

from .diff import compare
from .merge import SourceLine

_UNITS = ("\t", " " * 4, " " * 2, " " * 8)
_INDENT = re.compile(r"^[ \t]+(?=[^ \t\r\n])", re.MULTILINE)
_WIDTHS = (2, 3, 4)
"""Spaces of one indentation step. A larger common indentation may be several steps."""
_OPENER = re.compile(r"[:{(\[]$")
_MAX_LINES = 10_000
"""Lines of a file that are examined to find out how it is indented."""


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


def common_shift(pairs: Sequence[tuple[str, str]]) -> IndentShift | None:
    """Returns the shift that maps the first indentation of every pair to the second, or None."""
    if not pairs:
        return None
    fitting = (IndentShift(*pairs[0], units) for units in (None, *permutations(_UNITS, 2)))
    return next((shift for shift in fitting if all(shift(mine) == theirs for mine, theirs in pairs)), None)


def shift_between(old: Sequence[SourceLine], found: Sequence[SourceLine]) -> IndentShift | None:
    """Returns the shift from the old lines to those of the file, or None."""
    return common_shift([(mine.indent, theirs.indent) for mine, theirs in zip(old[1:], found[1:], strict=True)])


def reindent(
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
    least = _least_step(new)
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


def hang(file: str, margin: str, new: Sequence[SourceLine]) -> list[SourceLine] | None:
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


def _least_step(lines: Sequence[SourceLine]) -> int:
    depths = sorted({len(line.indent) for line in lines[1:]})
    return min((deeper - depth for depth, deeper in pairwise(depths)), default=0)


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


def _unchanged_pairs(old: Sequence[SourceLine], new: Sequence[SourceLine]) -> list[tuple[int, int]]:
    """Returns the indexes of the lines that are equal in both, apart from their indentation."""
    blocks = compare([line.text for line in old], [line.text for line in new])
    return [pair for block in blocks if block.same for pair in zip(block.old, block.new, strict=True)]


def _unmoved_count(found: Sequence[SourceLine], old: Sequence[SourceLine], new: Sequence[SourceLine]) -> int:
    """Returns how many of the unchanged lines keep their indentation."""
    return sum(found[at].indent == new[number].indent for at, number in _unchanged_pairs(old, new))


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
