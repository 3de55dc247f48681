"""Which files of a workspace a search looks at."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

from shared.errors import ErrorType, ToolError
from worker.files import TEMPORARY, Entry, Files
from worker.output import PRIVATE_DIR, is_private
from worker.search.gitignore import Ignoring
from worker.search.globbing import Pattern

MAX_ENTRIES = 500_000


def searched(files: Files, top: str, *, gitignore: bool, stop: Event) -> Iterator[Entry]:
    """Every file and link below ``top`` that a search looks at; an ignored ``top`` was asked for by name."""
    ignoring = Ignoring(files) if gitignore else None
    if ignoring is not None and ignoring.ignores_or_above(top):
        ignoring = None
    waiting = [top]
    seen = 0
    while waiting:
        folder = waiting.pop()
        try:
            entries = files.scan(folder)
        except ToolError:
            if folder == top:
                raise
            continue
        for entry in entries:
            seen += 1
            if stop.is_set() or seen > MAX_ENTRIES:
                return
            is_directory = entry.stat.kind == "directory"
            if _never(entry) or (ignoring and ignoring.ignores(entry.path, directory=is_directory)):
                continue
            if is_directory:
                waiting.append(entry.path)
            elif entry.stat.kind != "other":
                yield entry


def matching(files: Files, pattern: str, top: str, *, gitignore: bool, stop: Event) -> list[Entry]:
    """The files below ``top`` that fit the pattern, newest first, equally old ones by path (C24).

    The pattern starts at ``top``, or at the workspace where it is absolute. Links count where they lead to a file
    inside. Raises ToolError for a pattern that climbs or has too many alternatives.
    """
    if ".." in pattern.split("/"):
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, "the pattern holds '..'; give the directory as path instead")
    below = "" if top == "." or pattern.startswith("/") else top + "/"
    wanted = Pattern(files.relative(pattern) if pattern.startswith("/") else pattern)
    found = [
        entry
        for entry in searched(files, top, gitignore=gitignore and not is_private(top), stop=stop)
        if wanted.matches(entry.path.removeprefix(below)) and _is_file(files, entry)
    ]
    return sorted(found, key=lambda entry: (-entry.stat.mtime_ns, entry.path))


def _is_file(files: Files, entry: Entry) -> bool:
    if entry.stat.kind == "file":
        return True
    try:
        target = files.stat(entry.path)
    except ToolError:
        return False
    return target is not None and target.kind == "file"


def _never(entry: Entry) -> bool:
    return entry.name == ".git" or entry.path == PRIVATE_DIR or entry.name.startswith(TEMPORARY)
