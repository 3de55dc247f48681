"""The same lines with another, but constantly other, indentation, and new lines that are to stand in their place."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations

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
    indentation of the first found one, and the others keep theirs relative to it: a model that quoted lines without
    their indentation may or may not have written the new ones with it.
    """
    if all(mine.indent == theirs.indent for mine, theirs in zip(old, found, strict=True)) or len(new) == 1:
        return list(new)
    shift = shift_between(old, found)
    if shift is None:
        return None
    kind = _signs(line.indent for line in found) or _signs(_indents(file))
    for units in (None, *_other_units(file, kind, old, found, new)) if shift.units is None else (shift.units,):
        moving = Shift(new[1].indent, found[1].indent, units)
        indents = [moving(line.indent) for line in new[1:]]
        sure = [indent for indent in indents if indent is not None]
        if len(sure) == len(indents) and (not kind or _signs(sure) <= kind):
            return [new[0], *(replace(line, indent=indent) for line, indent in zip(new[1:], sure, strict=True))]
    return None


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
