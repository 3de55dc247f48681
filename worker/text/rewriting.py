"""New lines in the place of lines that are like the quoted ones but not the same."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shared.errors import ErrorType, ToolError
from worker.text.indentation import fitted
from worker.text.merging import Merge, lines_of
from worker.text.report import differences, listed
from worker.text.spans import line_end
from worker.text.textfile import TextFile


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
