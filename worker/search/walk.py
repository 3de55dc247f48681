"""The walk over the files of a workspace that a search includes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from threading import Event
from typing import NamedTuple

from ...shared.errors import ErrorType, ToolError
from ...shared.text import clip
from ..text.output import one_line
from ..threads import give_way
from ..workspace.file_entries import PRIVATE_DIR, is_being_written, is_private
from ..workspace.files import Files
from .gitignore import GitIgnoreTree
from .glob_pattern import Exists, GlobPattern, GlobState

_SHOWN = 5
_GONE = (ErrorType.FILE_NOT_FOUND, ErrorType.NOT_A_DIRECTORY)
MAX_ENTRIES = 500_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_EVERYTHING = GlobPattern("**")


class SkippedPaths:
    """The paths that a search could not include, with the reasons. Empty, it is false.

    ``remarks`` are further sentences that do not mean that the result is incomplete.
    """

    def __init__(self, name: Callable[[str], str] = str) -> None:
        """``name`` returns a path as sentences name it."""
        self._name = name
        self.remarks: list[str] = []
        self._shown: dict[str, str] = {}
        self._count = 0
        self._rest = ""

    def __bool__(self) -> bool:
        return self._count > 0 or self._rest != ""

    @property
    def count(self) -> int:
        return self._count

    def add(self, path: str, why: str) -> None:
        """Adds a path with the reason."""
        self._count += 1
        if len(self._shown) < _SHOWN:
            self._shown[self._name(path)] = why

    def add_error(self, path: str, error: ToolError) -> None:
        """Adds a path that could not be opened, unless it is gone."""
        if error.type not in _GONE:
            why = error.message.replace(f": {path!r}", "").replace(f": {path}", "").replace(f"{path} ", "")
            self.add(path, clip(why, 200))

    def give_up(self, why: str) -> None:
        """Records that the search ended early, with a sentence about it."""
        self._rest = why

    def sentences(self) -> Iterator[str]:
        """Yields the sentences for the result, each in parentheses."""
        if self._count:
            named = "; ".join(
                f"{clip(one_line(path), 200)}: {clip(one_line(why), 200)}" for path, why in self._shown.items()
            )
            more = f"; and {self._count - len(self._shown)} more" if self._count > len(self._shown) else ""
            yield f"(Not searched, or not completely: {named}{more}.)"
        if self._rest:
            yield f"({self._rest})"
        yield from (f"({remark})" for remark in self.remarks)


class WalkEntry(NamedTuple):
    """A file or a link that a search includes; ``changed`` is its modification time in nanoseconds."""

    path: str
    changed: int
    is_link: bool


def walk(
    files: Files,
    top: str,
    *,
    gitignore: bool,
    stop: Event,
    state: GlobState | None = None,
    skipped: SkippedPaths | None = None,
    most: int = MAX_ENTRIES,
) -> Iterator[WalkEntry]:
    """Yields every file and link below ``top`` that a search includes; an ignored ``top`` was requested by name.

    ``state`` is the state of a glob pattern at ``top``: only matching files are included, and directories in which no
    file can match are not opened. ``skipped`` receives what could not be read, and that there are more than ``most``
    entries. Raises ToolError if ``top`` cannot be read.
    """
    skipped = SkippedPaths() if skipped is None else skipped
    ignoring = GitIgnoreTree(files) if gitignore else None
    if ignoring is not None and ignoring.ignores_with_parents(top):
        ignoring = None
    start = "" if top == "." else top
    waiting = [(start, state or _EVERYTHING.at())]
    left = most
    while waiting and left > 0 and not stop.is_set():
        folder, state = waiting.pop()
        try:
            listing = _DirectoryScan(files, folder, state, ignoring, stop)
        except ToolError as error:
            if folder == start:
                raise
            skipped.add_error(folder, error)
            continue
        left -= listing.count
        waiting += listing.folders
        for entry in listing.found:
            if stop.is_set():
                return
            yield entry
    _add_limits(skipped, ignoring, most if waiting and left <= 0 else None)


def _add_limits(skipped: SkippedPaths, ignoring: GitIgnoreTree | None, most: int | None) -> None:
    if most is not None:
        skipped.give_up(f"Only the first {most} files and directories were searched. Use a narrower path.")
    if ignoring is not None and ignoring.truncated:
        skipped.remarks.append(f"Too large to be respected completely: {clip(', '.join(ignoring.truncated), 500)}")


class _DirectoryScan:
    """One directory, "" for the top: the files and links to include, and the subdirectories to enter."""

    def __init__(
        self, files: Files, folder: str, state: GlobState, ignoring: GitIgnoreTree | None, stop: Event
    ) -> None:
        self.folders: list[tuple[str, GlobState]] = []
        self.found: list[WalkEntry] = []
        self._prefix = folder and folder + "/"
        fd = files.open_fd(folder or ".", _FOLDER)
        try:
            with os.scandir(fd) as listing:
                entries = list(listing)
            self.count = len(entries)
            has_file = any(entry.name == ".gitignore" for entry in entries)
            ignored = ignoring.rules_of(folder, has_file=has_file) if ignoring else None
            for entry in entries:
                if stop.is_set():
                    break
                give_way()
                directory = entry.is_dir(follow_symlinks=False)
                inside = state.inside(entry.name) if directory else state
                if inside.is_dead_end if directory else not state.fits(entry.name):
                    continue
                if self._never(entry.name) or (ignored and ignored(entry.name, directory=directory)):
                    continue
                if directory:
                    self.folders.append((self._prefix + entry.name, inside))
                elif found := self._walk_entry(entry):
                    self.found.append(found)
        finally:
            os.close(fd)

    def _never(self, name: str) -> bool:
        return name == ".git" or is_being_written(name) or (name == PRIVATE_DIR and not self._prefix)

    def _walk_entry(self, entry: os.DirEntry[str]) -> WalkEntry | None:
        """Returns the file or link; None for anything else, and for a file that is gone."""
        is_link = entry.is_symlink()
        if not is_link and not entry.is_file(follow_symlinks=False):
            return None
        try:
            return WalkEntry(self._prefix + entry.name, entry.stat(follow_symlinks=False).st_mtime_ns, is_link)
        except FileNotFoundError:
            return None
        except OSError:  # the directory can be listed, but not entered
            return WalkEntry(self._prefix + entry.name, 0, is_link)


def find_files(
    files: Files,
    pattern: str,
    top: str,
    *,
    gitignore: bool,
    stop: Event,
    ignore_case: bool = False,
    skipped: SkippedPaths | None = None,
) -> list[WalkEntry]:
    """Returns the files below ``top`` that match a glob pattern, the newest first, then by path.

    The pattern starts at ``top``, an absolute one at the workspace. Links to a file inside the workspace are included.

    Raises:
        ToolError: INVALID_TOOL_PARAMS for a pattern with ``..`` or too many alternatives.
    """
    if ".." in pattern.split("/"):
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, "the pattern contains '..'; pass the directory as path instead")
    absolute = pattern.startswith("/")
    exists = exists_in(files, "." if absolute else top)
    wanted = GlobPattern(files.relative(pattern) if absolute else pattern, exists=exists, ignore_case=ignore_case)
    state = wanted.at(top if absolute else ".")
    gitignore = gitignore and not is_private(top)
    found = [
        entry
        for entry in walk(files, top, gitignore=gitignore, stop=stop, state=state, skipped=skipped)
        if not entry.is_link or _is_link_to_file(files, entry.path)
    ]
    return entries_by_mtime(found)


def exists_in(files: Files, top: str) -> Exists:
    """Returns the predicate whether a path exists below the directory."""

    def exists(path: str) -> bool:
        try:
            return files.stat(f"{top}/{path}", follow=False) is not None
        except ToolError:
            return False

    return exists


def entries_by_mtime(found: Iterable[WalkEntry]) -> list[WalkEntry]:
    """Sorts entries by modification time, the newest first, then by path."""
    return sorted(sorted(found, key=attrgetter("path")), key=attrgetter("changed"), reverse=True)


def _is_link_to_file(files: Files, link: str) -> bool:
    try:
        target = files.stat(link)
    except ToolError:
        return False
    return target is not None and target.kind == "file"
