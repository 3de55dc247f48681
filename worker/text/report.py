"""What is said of an edit: where it was made, what was overlooked to find the place, and what was written there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from worker.output import clip
from worker.text.merging import Line
from worker.text.numbered import numbered
from worker.text.spans import Span, line_start

_SHOWN, _SHOWN_CHARS = 5, 160
"""Lines of which is said how they differ, and how much of each."""
_WRITTEN, _WRITTEN_CHARS = 40, 300
"""Lines that are shown as they were written, and how much of each."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """The whole new text, the line of each place, and what had to be overlooked to find it (None: nothing).

    ``remark`` says more of it where that is not all there is to say.
    """

    text: str
    lines: tuple[int, ...]
    tolerated: str | None = None
    remark: str = ""
    moved: bool = field(default=False, compare=False)
    """Whether the new text was given another indentation than it came with."""
    repeated: bool = field(default=False, compare=False)
    """Whether the new text came with a part of what stands around the place; it was not written twice."""
    written: str = field(default="", compare=False)
    """The lines as they stand in the file now, where they need not be those of the new text."""

    def report(self, path: str) -> str:
        """What was changed where, what had to be overlooked to find it, and what was written."""
        count = len(self.lines)
        lines = ", ".join(map(str, self.lines[:20])) + (", …" if count > 20 else "")
        places = f"1 place, line {lines}" if count == 1 else f"{count} places, lines {lines}"
        said = f"Successfully edited {path}: {places}."
        if self.remark:
            said += f" {self.remark}"
        elif self.tolerated:
            said += f" old_string did not match exactly: differences in {self.tolerated} were overlooked."
        if self.moved:
            said += " new_string was re-indented as its place in the file is."
        if self.repeated:
            said += " new_string repeats what stands around its place in the file; that was not written twice."
        return f"{said}\n{self.written}" if self.written else said


def difference(old: Line, found: Line, number: int) -> str:
    return f"line {number} of the file was {clip(found.text, _SHOWN_CHARS)!r}, not {clip(old.text, _SHOWN_CHARS)!r}"


def differences(text: str, start: int, old: Sequence[Line], found: Sequence[Line]) -> tuple[int, int, list[str]]:
    """The numbers of the first and the last line of a stretch, and how each line differs that does."""
    number = text.count("\n", 0, start) + 1 + found[0].breaks
    first, last = number, number
    said: list[str] = []
    for mine, theirs in zip(old[1:], found[1:], strict=True):
        if mine.text != theirs.text:
            said.append(difference(mine, theirs, number))
        last = number
        number += theirs.breaks
    return first, last, said


def listed(said: Sequence[str]) -> str:
    more = f"; and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    return "; ".join(said[:_SHOWN]) + more


def written(text: str, spans: Sequence[Span]) -> str:
    """The lines of the places as they stand in the file after the edit, numbered."""
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
        parts += [numbered(shown, number + moved)] if shown else []
        parts += ["…"] * (len(lines) > room)
        room -= len(lines)
        moved += span.text.count("\n") - text.count("\n", span.start, span.end)
    return "The lines are now:\n" + "\n".join(parts) if parts else ""
