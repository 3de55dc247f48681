"""The same lines with another, but constantly other, indentation, and new lines that are to stand in their place."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise, permutations

from worker.text.diff import compared
from worker.text.merging import Line

_UNITS = ("\t", " " * 4, " " * 2, " " * 8)
_INDENT = re.compile(r"^[ \t]+(?=[^ \t\r\n])", re.MULTILINE)
_WIDTHS = (2, 3, 4)
"""Blanks of one step; where all stands deeper, nothing tells how many steps deep."""
_MAX_LOOKED_AT = 10_000
"""Lines of a file that tell how it is indented."""


@dataclass(frozen=True, slots=True)
class Shift:
    """From one indentation to another: ``mine`` becomes ``theirs``, and what is deeper or less deep goes along.

    ``units`` says what one step is on both sides where it is not the same.
    """

    mine: str
    theirs: str
    units: tuple[str, str] | None = None

    def __call__(self, indent: str) -> str | None:
        """None where there is no such indentation: less than nothing, or not made of whole steps."""
        if indent.startswith(self.mine):
            more = self._step(indent[len(self.mine) :])
            return None if more is None else self.theirs + more
        less = self._step(self.mine[len(indent) :]) if self.mine.startswith(indent) else None
        return self.theirs.removesuffix(less) if less and self.theirs.endswith(less) else None

    def _step(self, indent: str) -> str | None:
        if self.units is None:
            return indent
        mine, theirs = self.units
        count, rest = divmod(len(indent), len(mine))
        return None if rest or indent != mine * count else theirs * count


def shift_of(pairs: Sequence[tuple[str, str]]) -> Shift | None:
    """The one shift that leads from the first to the second indentation of each pair."""
    if not pairs:
        return None
    fitting = (Shift(*pairs[0], units) for units in (None, *permutations(_UNITS, 2)))
    return next((shift for shift in fitting if all(shift(mine) == theirs for mine, theirs in pairs)), None)


def shift_between(old: Sequence[Line], found: Sequence[Line]) -> Shift | None:
    """The shift that leads from the old lines to those of the file."""
    return shift_of([(mine.indent, theirs.indent) for mine, theirs in zip(old[1:], found[1:], strict=True)])


def fitted(file: str, old: Sequence[Line], found: Sequence[Line], new: Sequence[Line]) -> list[Line] | None:
    """The new lines as they have to be indented in the place of the found ones, or None where that is not certain.

    Where the old lines were indented as the file is, so are the new ones. Else the first new line gets the
    indentation of the first found one, or of the one that it is, and the others keep theirs relative to it: a model
    that quoted lines without their indentation may or may not have written the new ones with it.
    """
    if all(mine.indent == theirs.indent for mine, theirs in zip(old, found, strict=True)) or len(new) == 1:
        return list(new)
    shift = shift_between(old, found)
    if shift is None:
        return None
    kind = _signs(line.indent for line in found) or _signs(_indents(file))
    same = {theirs.indent for mine, theirs in zip(old, found, strict=True) if mine.text == new[1].text}
    anchor = same.pop() if len(same) == 1 else found[1].indent
    if shift.units is None:
        readings = [_read(anchor, new, units, kind) for units in (None, *_other_units(file, kind, old, found, new))]
        return next((reading for reading in readings if reading), None)
    mine, theirs = (_read(anchor, new, units, kind) for units in (shift.units, None))
    if not mine or not theirs or mine == theirs:
        return mine or theirs
    # in the steps of the old lines or in those of the file already: the lines that stay tell, or the least step
    least = _least_step(new)
    scores = [(_unmoved(found, old, mine), least == len(shift.units[0]))]
    scores += [(_unmoved(found, old, theirs), least == len(shift.units[1]))]
    return None if scores[0] == scores[1] else mine if scores[0] > scores[1] else theirs


def _least_step(lines: Sequence[Line]) -> int:
    depths = sorted({len(line.indent) for line in lines[1:]})
    return min((deeper - depth for depth, deeper in pairwise(depths)), default=0)


def _read(anchor: str, new: Sequence[Line], units: tuple[str, str] | None, kind: set[str]) -> list[Line] | None:
    """The new lines if one of their steps is what ``units`` says; None where they do not consist of such steps."""
    moving = Shift(new[1].indent, anchor, units)
    lines: list[Line] = []
    for line in new[1:]:
        indent = moving(line.indent)
        if indent is None or (kind and not _signs([indent]) <= kind):
            return None
        lines.append(replace(line, indent=indent))
    return [new[0], *lines]


def _staying(old: Sequence[Line], new: Sequence[Line]) -> list[tuple[int, int]]:
    """Which of the old lines are which of the new ones, but for their indentation."""
    steps = compared([line.text for line in old], [line.text for line in new])
    return [pair for step in steps if step.same for pair in zip(step.old, step.new, strict=True)]


def _unmoved(found: Sequence[Line], old: Sequence[Line], new: Sequence[Line]) -> int:
    """How many of the lines that the new text keeps stand as deep as they did."""
    return sum(found[at].indent == new[number].indent for at, number in _staying(old, new))


def _other_units(
    file: str, kind: set[str], old: Sequence[Line], found: Sequence[Line], new: Sequence[Line]
) -> list[tuple[str, str]]:
    """What one step may be where the model indents by blanks and the file by tabs, or the other way round."""
    if kind == {"\t"}:
        mine = _unit([line.indent for line in [*old, *new]])
        return [(mine, "\t")] if mine else []
    theirs = _unit([line.indent for line in found]) or _unit(_indents(file))
    return [("\t", theirs)] if theirs else []


def _unit(indents: Iterable[str]) -> str:
    """The step of which all the indentations consist; "" where there is none."""
    given = [indent for indent in indents if indent]
    if not given or _signs(given) != {" "}:
        return ""
    size = math.gcd(*map(len, given))
    return " " * size if size in _WIDTHS else ""


def _indents(text: str) -> list[str]:
    return [match[0] for match in islice(_INDENT.finditer(text), _MAX_LOOKED_AT)]


def _signs(indents: Iterable[str]) -> set[str]:
    return {sign for indent in indents for sign in indent}
