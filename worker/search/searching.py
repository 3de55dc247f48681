"""Which files of a workspace a search looks at."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

from shared.errors import ToolError
from worker.files import TEMPORARY, Entry, Files
from worker.output import PRIVATE_DIR
from worker.search.gitignore import Ignoring

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


def _never(entry: Entry) -> bool:
    return entry.name == ".git" or entry.path == PRIVATE_DIR or entry.name.startswith(TEMPORARY)
