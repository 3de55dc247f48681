"""What comes in the place of a stretch of a file, also where the quoted lines are only like those that stand there.

Here is, too, what is said of an edit: where it was made, what was overlooked to find the place, and what was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from shared.errors import ErrorType, ToolError
from shared.text import clip
from worker.text.indentation import fitted
from worker.text.merging import Line, Merge, evenness, lines_of
from worker.text.textfile import TextFile, numbered

_SHOWN, _SHOWN_CHARS = 5, 160
"""Lines of which is said how they differ, and how much of each."""
_WRITTEN, _WRITTEN_CHARS = 40, 300
"""Lines that are shown as they were written, and how much of each."""
_CHARS = 160
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the file and what comes in its place."""

    start: int
    end: int
    text: str


def spliced(text: str, spans: Sequence[Span]) -> str:
    parts: list[str] = []
    end = 0
    for span in spans:
        parts += (text[end : span.start], span.text)
        end = span.end
    return "".join([*parts, text[end:]])


def line_start(text: str, at: int) -> int:
    """Where the line begins that ``at`` is in."""
    return text.rfind("\n", 0, at) + 1


def line_stop(text: str, at: int) -> int:
    """Where the line ends that ``at`` is in, before its line end."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end - (end > at and text[end - 1 : end] == "\r")


def line_numbers(text: str, spans: Sequence[Span]) -> tuple[int, ...]:
    """The lines in which the stretches begin; the first line is 1."""
    numbers: list[int] = []
    line, end = 1, 0
    for span in spans:
        line += text.count("\n", end, span.start)
        end = span.start
        numbers.append(line)
    return tuple(numbers)


def line_end(file: TextFile, start: int, end: int) -> str:
    """The line end of a stretch, or the file's where it has none."""
    stretch = file.text[start:end]
    return "\r\n" if "\r\n" in stretch else "\n" if "\n" in stretch else file.newline


def with_line_ends(text: str, style: str) -> str:
    return text if style == "\n" else text.replace("\r\n", "\n").replace("\n", style)


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


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What comes in the place of a stretch, and whether it was given another indentation than it came with."""

    text: str
    moved: bool = False


def rewritten(file: TextFile, place: tuple[int, int], old: str, new: str) -> Rewritten | None:
    """The new text as it fits into the place that was found for the old one; None where no indentation fits.

    Raises ToolError(EDIT_NOT_FOUND) where the change would lose what the file has otherwise.
    """
    start, end = place
    found = lines_of(file.text[start:end])
    quoted, asked = (lines_of(text.replace("\r\n", "\n")) for text in (old, new))
    if len(quoted) != len(found):
        return None
    fresh = fitted(file.text, quoted, found, asked)
    if fresh is None:
        return None
    if twice := _brought_again(file.text, place, quoted, asked):
        raise ToolError(
            ErrorType.EDIT_NOT_FOUND,
            f"old_string is not in the file as it was given, and new_string brings the line {clip(twice, _CHARS)!r}, "
            "which stands beside the nearest place already. Nothing was changed. "
            "Copy old_string exactly from the file.",
        )
    there = [replace(mine, indent=theirs.indent) for mine, theirs in zip(quoted, found, strict=True)]
    text = Merge(there, found, fresh, line_end(file, start, end)).text()
    if text is not None:
        return Rewritten(text, fresh != asked)
    first, last, said = differences(file.text, start, quoted, found)
    raise ToolError(
        ErrorType.EDIT_NOT_FOUND,
        f"old_string is not in the file as it was given. Lines {first}-{last} are nearly like it, but new_string "
        f"changes just what differs there, so that it is not certain what to write: {listed(said)}. "
        "Nothing was changed. Copy old_string exactly from the file, and keep in new_string what has to stay.",
    )


def _brought_again(text: str, place: tuple[int, int], old: Sequence[Line], new: Sequence[Line]) -> str | None:
    """A line that the new text begins or ends with, unlike the old one, and that stands right beside the place."""
    if len(new) < 2 or len(old) < 2:
        return None
    (*above, head), rest = text[: place[0]].split("\n"), text[place[1] :].split("\n")
    if not text[: place[1]].endswith("\n"):
        rest = rest[1:] if not rest[0].strip() else []
    before = _first_filled(reversed(above)) if not head.strip() else ""
    quoted = {line.text for line in old}
    for beside, line in ((before, new[1].text), (_first_filled(rest), new[-1].text)):
        # brackets alone may well stand below each other, unless one more of them is closed or opened than before
        counts = _WORD.search(line) or _brackets(old) != _brackets(new)
        if beside == line and line not in quoted and counts:
            return line
    return None


def _brackets(lines: Sequence[Line]) -> list[int]:
    return evenness("\n".join(line.text for line in lines))[1]


def _first_filled(lines: Iterable[str]) -> str:
    return next((line.strip() for line in lines if line.strip()), "")
