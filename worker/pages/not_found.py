"""Why a file is not there, and what comes closest."""

from __future__ import annotations

from rapidfuzz import fuzz, process

from shared.errors import ErrorType, ToolError
from worker.workspace.files import Files

_SIMILAR = 60.0
"""Of 100; below it two names have little in common."""


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
