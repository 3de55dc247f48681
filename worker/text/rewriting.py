"""New lines in the place of lines that are like the quoted ones but not the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from shared.errors import ErrorType, ToolError
from worker.output import clip
from worker.text.indentation import fitted
from worker.text.merging import Line, Merge, evenness, lines_of
from worker.text.report import differences, listed
from worker.text.spans import line_end
from worker.text.textfile import TextFile

_CHARS = 160
_WORD = re.compile(r"\w")


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
