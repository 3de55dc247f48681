"""Three texts made one: what a new text keeps of an old one stays as the file has it, the rest is new."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rapidfuzz import process
from rapidfuzz.distance import Indel

from worker.text.diff import Step, compared
from worker.text.indentation import Rule

_TEXT = re.compile(r"[^ \t\r\n](?:[^\n]*[^ \t\r\n])?")
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_SAME_LINE = 0.6
"""From here on a new line is an old one that was changed."""
_MAX_PAIRS = 40_000
"""Lines compared, old ones times new ones, to find out which was changed into which."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not blank. ``gap`` is what stands between its text and the next such line's indentation."""

    indent: str
    text: str
    gap: str

    @property
    def whole(self) -> str:
        return self.indent + self.text

    @property
    def breaks(self) -> int:
        """Line ends that follow: 1 where the next line comes at once, 0 where all ends here."""
        return self.gap.count("\n")


def lines_of(text: str) -> list[Line]:
    """The lines that are not blank. The first one is empty: its gap is what stands before the others."""
    found = [(match.start(), match.end()) for match in _TEXT.finditer(text)]
    lines: list[Line] = []
    indent = ""
    for (start, end), (following, _) in pairwise([(0, 0), *found, (len(text), len(text))]):
        cut = text.rfind("\n", end, following) + 1 or end
        if following == len(text):
            cut = following
        lines.append(Line(indent, text[start:end], text[end:cut]))
        indent = text[cut:following]
    return lines


@dataclass(frozen=True, slots=True)
class Merge:
    """Old lines that a model quoted, the lines of a file that it meant, one for one, and what it wants instead.

    ``rule`` leads from the old indentation to the file's, ``style`` is the line end of new lines.
    """

    old: Sequence[Line]
    found: Sequence[Line]
    new: Sequence[Line]
    rule: Rule
    style: str

    def text(self) -> str | None:
        """The new text, or None where the rule says nothing of an indentation in it.

        Lines that the new text has in common with the old one stay as the file has them, with their line ends and
        the blank lines below. In a line that was changed the words that stayed do. What the file has otherwise *and*
        the new text changes, is as the new text says.
        """
        parts: list[str] = []
        for step in compared([line.whole for line in self.old], [line.whole for line in self.new]):
            for at, number in enumerate(step.new):
                body = self.found[step.old[at]].whole if step.same else self._changed(step, number)
                if body is None:
                    return None
                is_last = step.old and number == step.new[-1]
                earlier = step.old[at] if step.same else step.old[-1] if is_last else None
                parts += (body, self._gap(number, earlier, same=step.same))
        return "".join(parts)

    def _changed(self, step: Step, number: int) -> str | None:
        """A line that is new or was changed."""
        line = self.new[number]
        indent = self.rule(line.indent)
        if indent is None:
            return None
        earlier = self._earlier(step, number)
        text = None if earlier is None else _merged(self.old[earlier].text, self.found[earlier].text, line.text)
        return indent + (line.text if text is None else text)

    def _earlier(self, step: Step, number: int) -> int | None:
        """Which of the old lines was changed into this one."""
        if len(step.old) * len(step.new) > _MAX_PAIRS:
            return None
        texts = [self.old[each].text for each in step.old]
        likest = process.extractOne(
            self.new[number].text, texts, scorer=Indel.normalized_similarity, score_cutoff=_SAME_LINE
        )
        return step.old[likest[2]] if likest else None

    def _gap(self, number: int, earlier: int | None, *, same: bool) -> str:
        """What follows a new line: as in the file, where the model left it as it was."""
        is_last = number == len(self.new) - 1
        earlier = len(self.old) - 1 if is_last else earlier
        mine = self.new[number].gap
        if earlier is None or self.old[earlier].breaks != self.new[number].breaks:
            return mine.replace("\n", self.style)
        theirs = self.found[earlier].gap
        if mine and not is_last and "\n" not in theirs:
            return self.style  # it was the file's last line and is not any more
        return theirs if same else mine[: len(mine) - len(mine.lstrip(" \t"))] + theirs.lstrip(" \t")


def _merged(old: str, found: str, new: str) -> str | None:
    """Both changes of a line in one, or None where they meet."""
    words = _WORD.findall(old)
    changes = sorted({*_changes(words, _WORD.findall(found)), *_changes(words, _WORD.findall(new))})
    parts: list[str] = []
    before = (-1, 0)
    for start, end, text in changes:
        if start < before[1] or (start, end) == before:
            return None
        parts += (*words[before[1] : start], text)
        before = (start, end)
    return "".join([*parts, *words[before[1] :]])


def _changes(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, str]]:
    """Which words, from and to, become what."""
    return [
        (step.old.start, step.old.stop, "".join(new[step.new.start : step.new.stop]))
        for step in compared(old, new)
        if not step.same
    ]
