"""Which files of a workspace a search looks at."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from operator import attrgetter
from threading import Event
from typing import NamedTuple

from shared.errors import ErrorType, ToolError
from shared.text import clip
from worker.output import one_line
from worker.search.gitignore import Ignoring
from worker.search.globbing import Exists, Pattern, Place
from worker.threads import give_way
from worker.workspace.file_entries import is_being_written
from worker.workspace.files import Files
from worker.workspace.private import PRIVATE_DIR, is_private

_SHOWN = 5
_GONE = (ErrorType.FILE_NOT_FOUND, ErrorType.NOT_A_DIRECTORY)
MAX_ENTRIES = 500_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_EVERYTHING = Pattern("**")


class Unsearched:
    """Collects paths with the reason why nothing is known of them. Empty, it is false.

    ``remarks`` are for what makes an answer longer than asked for, not shorter.
    """

    def __init__(self) -> None:
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
        self._count += 1
        if len(self._shown) < _SHOWN:
            self._shown[path] = why

    def add_error(self, path: str, error: ToolError) -> None:
        """For what could not be opened; what is gone by now is not missed."""
        if error.type not in _GONE:
            why = error.message.replace(f": {path!r}", "").replace(f": {path}", "").replace(f"{path} ", "")
            self.add(path, clip(why, 200))

    def give_up(self, why: str) -> None:
        """For a search that ended before its end."""
        self._rest = why

    def sentences(self) -> Iterator[str]:
        """What the answer has to say of it, each in parentheses and on a line of its own."""
        if self._count:
            named = "; ".join(
                f"{clip(one_line(path), 200)}: {clip(one_line(why), 200)}" for path, why in self._shown.items()
            )
            more = f"; and {self._count - len(self._shown)} more" if self._count > len(self._shown) else ""
            yield f"(Not searched, or not as a whole: {named}{more}.)"
        if self._rest:
            yield f"({self._rest})"
        yield from (f"({remark})" for remark in self.remarks)


class Seen(NamedTuple):
    """A file or a link that a search looks at; ``changed`` says when it was, in nanoseconds."""

    path: str
    changed: int
    is_link: bool


def searched(
    files: Files,
    top: str,
    *,
    gitignore: bool,
    stop: Event,
    place: Place | None = None,
    unsearched: Unsearched | None = None,
    most: int = MAX_ENTRIES,
) -> Iterator[Seen]:
    """Every file and link below ``top`` that a search looks at; an ignored ``top`` was asked for by name.

    ``place`` is ``top`` as a pattern sees it: then only what fits is given, and directories in which nothing can are
    not opened. ``unsearched`` is told what could not be looked at, and that there were more than ``most``
    entries. Raises ToolError where ``top`` is no directory.
    """
    unsearched = Unsearched() if unsearched is None else unsearched
    ignoring = Ignoring(files) if gitignore else None
    if ignoring is not None and ignoring.ignores_or_above(top):
        ignoring = None
    start = "" if top == "." else top
    waiting = [(start, place or _EVERYTHING.at())]
    left = most
    while waiting and left > 0 and not stop.is_set():
        folder, place = waiting.pop()
        try:
            listing = _Listing(files, folder, place, ignoring, stop)
        except ToolError as error:
            if folder == start:
                raise
            unsearched.add_error(folder, error)
            continue
        left -= listing.count
        waiting += listing.folders
        for seen in listing.found:
            if stop.is_set():
                return
            yield seen
    _tell(unsearched, ignoring, most if waiting and left <= 0 else None)


def _tell(unsearched: Unsearched, ignoring: Ignoring | None, most: int | None) -> None:
    if most is not None:
        unsearched.give_up(f"Only the first {most} files and directories were looked at. Use a narrower path.")
    if ignoring is not None and ignoring.partly:
        unsearched.remarks.append(f"Too large to be respected as a whole: {clip(', '.join(ignoring.partly), 500)}")


class _Listing:
    """One directory, "" for the top: the files and links to look at, and the directories to go into."""

    def __init__(self, files: Files, folder: str, place: Place, ignoring: Ignoring | None, stop: Event) -> None:
        self.folders: list[tuple[str, Place]] = []
        self.found: list[Seen] = []
        self._prefix = folder and folder + "/"
        fd = files.open_fd(folder or ".", _FOLDER)
        try:
            with os.scandir(fd) as listing:
                entries = list(listing)
            self.count = len(entries)
            has_file = any(entry.name == ".gitignore" for entry in entries)
            ignored = ignoring.within(folder, has_file=has_file) if ignoring else None
            for entry in entries:
                if stop.is_set():
                    break
                give_way()
                directory = entry.is_dir(follow_symlinks=False)
                inside = place.inside(entry.name) if directory else place
                if inside.is_dead if directory else not place.fits(entry.name):
                    continue
                if self._never(entry.name) or (ignored and ignored(entry.name, directory=directory)):
                    continue
                if directory:
                    self.folders.append((self._prefix + entry.name, inside))
                elif seen := self._seen(entry):
                    self.found.append(seen)
        finally:
            os.close(fd)

    def _never(self, name: str) -> bool:
        return name == ".git" or is_being_written(name) or (name == PRIVATE_DIR and not self._prefix)

    def _seen(self, entry: os.DirEntry[str]) -> Seen | None:
        """The file or link, or None for what is neither, or has vanished."""
        is_link = entry.is_symlink()
        if not is_link and not entry.is_file(follow_symlinks=False):
            return None
        try:
            return Seen(self._prefix + entry.name, entry.stat(follow_symlinks=False).st_mtime_ns, is_link)
        except FileNotFoundError:
            return None
        except OSError:  # a directory that may be listed, but not entered
            return Seen(self._prefix + entry.name, 0, is_link)


def matching(
    files: Files,
    pattern: str,
    top: str,
    *,
    gitignore: bool,
    stop: Event,
    ignore_case: bool = False,
    unsearched: Unsearched | None = None,
) -> list[Seen]:
    """The files below ``top`` that fit the pattern, newest first, equally old ones by path.

    The pattern starts at ``top``, or at the workspace where it is absolute. Links count where they lead to a file
    inside. Raises ToolError for a pattern that climbs or has too many alternatives.
    """
    if ".." in pattern.split("/"):
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, "the pattern holds '..'; give the directory as path instead")
    absolute = pattern.startswith("/")
    exists = exists_in(files, "." if absolute else top)
    wanted = Pattern(files.relative(pattern) if absolute else pattern, exists=exists, ignore_case=ignore_case)
    place = wanted.at(top if absolute else ".")
    gitignore = gitignore and not is_private(top)
    found = [
        seen
        for seen in searched(files, top, gitignore=gitignore, stop=stop, place=place, unsearched=unsearched)
        if not seen.is_link or _leads_to_a_file(files, seen.path)
    ]
    return newest_first(found)


def exists_in(files: Files, top: str) -> Exists:
    """Whether something of a name is below the directory, whatever it is."""

    def exists(path: str) -> bool:
        try:
            return files.stat(f"{top}/{path}", follow=False) is not None
        except ToolError:
            return False

    return exists


def newest_first(found: Iterable[Seen]) -> list[Seen]:
    """In the order in which things are shown."""
    return sorted(sorted(found, key=attrgetter("path")), key=attrgetter("changed"), reverse=True)


def _leads_to_a_file(files: Files, link: str) -> bool:
    try:
        target = files.stat(link)
    except ToolError:
        return False
    return target is not None and target.kind == "file"
