"""Why a file, or a text in it, is not there, and what comes closest: the help a model needs to try again."""

from __future__ import annotations

from rapidfuzz import fuzz, process

from shared.errors import ErrorType, ToolError
from worker.output import clip
from worker.text.numbered import numbered, without_numbers
from worker.text.omission import placeholder
from worker.text.replacement import find
from worker.text.textfile import TextFile
from worker.workspace.files import Files

_LINES_SEARCHED = 20_000
_LINES_COMPARED = 50
_LINES_SHOWN = 12
_LINE_CHARS = 300
_SIMILAR = 60.0
"""Of 100; below it two texts have little in common."""


def no_such_file(files: Files, path: str) -> ToolError:
    """That the file is not there, and which of its would-be neighbours have a similar name."""
    folder, _, name = files.relative(path).rstrip("/").rpartition("/")
    try:
        names = [entry.name for entry in files.scan(folder or ".") if entry.stat.kind == "file"]
    except ToolError:
        return ToolError(ErrorType.FILE_NOT_FOUND, f"File not found: {path}. There is no directory {folder} either.")
    near = process.extract(name, names, scorer=fuzz.ratio, score_cutoff=_SIMILAR, limit=3)
    found = [f"{folder}/{each}" if folder else each for each, _, _ in near]
    hint = f". Did you mean {' or '.join(found)}?" if found else ""
    return ToolError(ErrorType.FILE_NOT_FOUND, f"File not found: {path}{hint}")


def no_such_text(file: TextFile, path: str, old: str, new: str) -> ToolError:
    reason = _known_mistake(file, old) or _advice(file, old, new) + _closest(file, old)
    return ToolError(ErrorType.EDIT_NOT_FOUND, f"Text not found in {path}: {clip(repr(old), 200)}. {reason}")


def _known_mistake(file: TextFile, old: str) -> str | None:
    if (bare := without_numbers(old)) and find(file, bare):
        return (
            "It begins every line with a line number, as read_file prints them. They are not part of the file: "
            "send old_string and new_string without them."
        )
    if (plain := _unescaped(old)) != old and find(file, plain):
        return r"It is escaped twice: send line ends, tabs and quotes themselves, not as \n, \t and \"."
    if found := placeholder(old, file.text):
        return f"It has a placeholder, {clip(found, 100)!r}: send the lines that it stands for, or leave them out."
    if "\ufffd" in old and file.readable != file.text:
        return "\ufffd stands for bytes of the file that are not valid UTF-8: leave them out of old_string."
    return None


def _unescaped(text: str) -> str:
    for written, meant in (("\\n", "\n"), ("\\t", "\t"), ('\\"', '"'), ("\\'", "'")):
        text = text.replace(written, meant)
    return text


def _advice(file: TextFile, old: str, new: str) -> str:
    if len(new.strip()) > 2 and new not in old and (places := find(file, new)):
        return f"new_string is there already (line {places[0]}): perhaps this edit was made before."
    return "Check blanks, indentation and line ends, or read the file again: it may have changed."


def _closest(file: TextFile, old: str) -> str:
    """The stretch of the file most like the old text, with its line numbers; found by its longest line."""
    lines = [line[:_LINE_CHARS] for line in file.readable.split("\n")[:_LINES_SEARCHED]]
    wanted = [line[:_LINE_CHARS] for line in old.replace("\r\n", "\n").strip("\n").split("\n")[:_LINES_COMPARED]]
    anchor = max(range(len(wanted)), key=lambda at: len(wanted[at].strip()))
    if not wanted[anchor].strip():
        return ""
    found = process.extract(wanted[anchor], lines, scorer=fuzz.ratio, score_cutoff=_SIMILAR, limit=3)
    if not found:
        return ""
    text = "\n".join(wanted)
    starts = [max(0, at - anchor) for _, _, at in found]
    start = max(starts, key=lambda at: fuzz.ratio("\n".join(lines[at : at + len(wanted)]), text))
    stretch = lines[start : start + min(len(wanted), _LINES_SHOWN)]
    return f"\nThe closest lines are:\n{numbered((line.removesuffix(chr(13)) for line in stretch), start + 1)}"
