"""Errors for a path under which there is no file: with similar names, and with the form that a foreign one has here."""

from __future__ import annotations

import re
from urllib.parse import unquote

from rapidfuzz import fuzz, process

from ...shared.errors import ErrorType, ToolError
from ..contracts import FileAccess

_SIMILAR = 60.0
"""The least similarity, of 100, of a file name that is suggested."""
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_QUOTES = ('"', "'", "`")


def file_not_found_error(files: FileAccess, path: str) -> ToolError:
    """Returns the error for a missing file, with files of the same directory that have a similar name."""
    if (link := files.stat(path, follow=False)) and link.kind == "symlink":
        return ToolError(ErrorType.FILE_NOT_FOUND, f"File not found: {path} is a link whose target does not exist.")
    if meant := _form_here(files, path):
        hint = f"Did you mean {meant}?" if files.stat(meant) else f"Write such a path as {meant}."
        return ToolError(ErrorType.FILE_NOT_FOUND, f"File not found: {path}. {hint}")
    folder, _, name = files.relative(path).rstrip("/").rpartition("/")
    try:
        names = [entry.name for entry in files.scan(folder or ".") if entry.stat.kind == "file"]
    except ToolError:
        return ToolError(ErrorType.FILE_NOT_FOUND, f"File not found: {path}. There is no directory {folder}.")
    near = process.extract(name, names, scorer=fuzz.ratio, score_cutoff=_SIMILAR, limit=3)
    found = [f"{folder}/{each}" if folder else each for each, _, _ in near]
    hint = f". Did you mean {' or '.join(found)}?" if found else ""
    return ToolError(ErrorType.FILE_NOT_FOUND, f"File not found: {path}{hint}")


def refuse_foreign_form(files: FileAccess, path: str) -> None:
    """Raises ToolError(PATH_NOT_ALLOWED) for a new file whose path is written as other systems and tools write it."""
    if (meant := _form_here(files, path)) is not None:
        raise ToolError(
            ErrorType.PATH_NOT_ALLOWED,
            f"Path not allowed: {path!r}: write it as {meant}, relative to the workspace and with /. A file that is "
            f"really to have this name is written as ./{path}. Nothing was changed.",
        )


def _form_here(files: FileAccess, path: str) -> str | None:
    """Returns how a URL of a file, a path of Windows, a mention with @ or a quoted path is written here."""
    if path.startswith("./"):
        return None
    meant = path.strip()
    if len(meant) > 2 and meant[0] == meant[-1] and meant[0] in _QUOTES:
        meant = meant[1:-1]
    if meant.lower().startswith("file:"):
        meant = re.sub("^//(localhost)?(?=/)", "", unquote(meant[5:]))
    if "\\" in meant or _DRIVE.match(meant):
        meant = _DRIVE.sub("", meant, count=1).replace("\\", "/").lstrip("/")
    first = meant.split("/")[0]
    if first.startswith("@") and len(meant) > 1 and not files.stat(first):
        meant = meant[1:]
    if meant == path.strip() or not meant:
        return None
    try:
        return files.relative(meant)
    except ToolError:
        return None
