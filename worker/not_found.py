"""Why a text to replace is not in a file, and what comes closest: the help a model needs to try again."""

from __future__ import annotations

from rapidfuzz import fuzz, process

from shared.errors import ErrorType, ToolError
from worker.numbered import numbered, without_numbers
from worker.output import clip
from worker.replacement import find
from worker.textfile import TextFile

_LINES_SEARCHED = 20_000
_LINES_SHOWN = 12
_SIMILAR = 60.0
"""Of 100; below it two lines have little in common."""


def why_not_found(file: TextFile, path: str, old: str, new: str) -> ToolError:
    if (bare := without_numbers(old)) and find(file, bare):
        return ToolError(
            ErrorType.EDIT_NOT_FOUND,
            f"Text not found in {path}: old_string begins every line with a line number as read_file prints them. "
            "They are not part of the file: send old_string and new_string without them.",
        )
    if (plain := _unescaped(old)) != old and find(file, plain):
        return ToolError(
            ErrorType.EDIT_NOT_FOUND,
            f"Text not found in {path}: old_string is escaped twice. Send line ends, tabs and quotes themselves, "
            r"not as \n, \t and \".",
        )
    shown = clip(repr(old), 200)
    advice = "Check blanks, indentation and line ends, or read the file again; it may have changed."
    if new.strip() and (places := find(file, new)):
        advice = f"new_string is there already (line {places[0]}): perhaps this edit was made before."
    return ToolError(ErrorType.EDIT_NOT_FOUND, f"Text not found in {path}: {shown}. {advice}{_closest(file, old)}")


def _unescaped(text: str) -> str:
    for written, meant in (("\\n", "\n"), ("\\t", "\t"), ('\\"', '"'), ("\\'", "'")):
        text = text.replace(written, meant)
    return text


def _closest(file: TextFile, old: str) -> str:
    """The stretch of the file most like the old text, with its line numbers."""
    lines = [line[:500] for line in file.readable.split("\n")[:_LINES_SEARCHED]]
    wanted = [line[:500] for line in old.replace("\r\n", "\n").strip("\n").split("\n")]
    anchor = max(range(len(wanted)), key=lambda at: len(wanted[at].strip()))
    if not wanted[anchor].strip():
        return ""
    found = process.extract(wanted[anchor], lines, scorer=fuzz.ratio, score_cutoff=_SIMILAR, limit=3)
    if not found:
        return ""
    size = min(len(wanted), 50)
    text = "\n".join(wanted[:size])
    starts = [max(0, at - anchor) for _, _, at in found]
    start = max(starts, key=lambda at: fuzz.ratio("\n".join(lines[at : at + size]), text))
    stretch = [clip(line.removesuffix("\r"), 200) for line in lines[start : start + min(size, _LINES_SHOWN)]]
    return f"\nThe closest lines are:\n{numbered(stretch, start + 1)}"
