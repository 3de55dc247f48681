"""Several files in one text, each below its name: a large one is cut so that the others have room."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event

from shared.errors import ErrorType, ToolError
from shared.text import clip, valid
from shared.tokens import estimate
from worker.output import one_line
from worker.pages.page import PAGE_CHARS, PAGE_TOKENS, Room, no_such_file, page, read_stretch, remarks
from worker.search.searching import Unsearched, matching
from worker.workspace.files import Files

_SAID = 4000
"""Characters, and tokens, kept free for the names of what is left out."""
_WILD = re.compile(r"[*?\[{]")


@dataclass(slots=True)
class ManyFiles:
    """What was asked for, what is said of each, and how much room is left. A file's trouble stops no other file."""

    files: Files
    asked: dict[str, str] = field(default_factory=dict[str, str])
    """What is said of each file, in the order of asking; "" where nothing is."""
    read: list[str] = field(default_factory=list[str])
    errors: list[ToolError] = field(default_factory=list[ToolError])
    left_out: list[str] = field(default_factory=list[str])
    chars: int = PAGE_CHARS - _SAID
    tokens: int = PAGE_TOKENS - _SAID

    def take(self, paths: Sequence[str], most: int, stop: Event) -> None:
        """Reads what paths and patterns name, each file once: small ones first, so that large ones get the rest."""
        named = self._named(paths, stop)
        wanted = sorted(named[:most], key=self._size)
        for at, path in enumerate(wanted):
            if stop.is_set():
                return
            self._add(path, sharing=len(wanted) - at)
        self.left_out += named[most:]

    @property
    def text(self) -> str:
        parts = [part for part in self.asked.values() if part]
        if self.left_out:
            names = clip(", ".join(map(one_line, self.left_out)), _SAID // 4)
            count = f"{len(self.left_out)} file{'s' * (len(self.left_out) != 1)}"
            parts.append(f"(Left out, because there is no more room: {count}: {names})")
        return "\n".join(parts)

    def _named(self, paths: Sequence[str], stop: Event) -> list[str]:
        chosen: dict[str, None] = {}
        for path in paths:
            try:
                found = list(_named(self.files, path, stop))
                self.asked |= dict.fromkeys(found, "")
                chosen |= dict.fromkeys(found)
            except ToolError as error:
                self._tell(path, error)
        return list(chosen)

    def _size(self, path: str) -> int:
        try:
            found = self.files.stat(path)
        except ToolError:
            return 0
        return found.size if found else 0

    def _add(self, path: str, sharing: int) -> None:
        """The file, in its part of the room that is left; ``sharing`` counts the files that still need some."""
        try:
            section = _section(self.files, path, Room(chars=self.chars // sharing, tokens=self.tokens // sharing))
        except ToolError as error:
            self._tell(path, error)
        else:
            (self.read if self._say(path, section) else self.left_out).append(path)

    def _tell(self, path: str, error: ToolError) -> None:
        self.errors.append(error)
        if not self._say(path, f"Error: {clip(error.message, 500)}"):
            self.left_out.append(path)

    def _say(self, path: str, section: str) -> bool:
        part = valid(f"==> {clip(one_line(path), 500)} <==\n{section}\n")
        tokens = estimate(part)
        if len(part) > self.chars or tokens > self.tokens:
            return False
        self.asked[path] = part
        self.chars -= len(part)
        self.tokens -= tokens
        return True


def _named(files: Files, path: str, stop: Event) -> Iterator[str]:
    plain = files.relative(path)
    if not _WILD.search(path) or files.stat(plain) is not None:
        yield plain
        return
    names = plain.split("/")
    at = next(number for number, name in enumerate(names) if _WILD.search(name))
    top, missed = "/".join(names[:at]) or ".", Unsearched()
    found = matching(files, "/".join(names[at:]), top, gitignore=True, stop=stop, unsearched=missed)
    if not found and missed:
        said = f"No file that could be looked at matches {path!r}. {' '.join(missed.sentences())}"
        raise ToolError(ErrorType.EXECUTION_FAILED, said)
    if not found:
        raise ToolError(ErrorType.FILE_NOT_FOUND, f"No file matches {path!r}. Look with glob which files there are.")
    yield from (entry.path for entry in found)


def _section(files: Files, path: str, room: Room) -> str:
    found = files.stat(path)
    if found is None:
        raise no_such_file(files, path)
    if found.kind == "directory":
        raise ToolError(ErrorType.NOT_A_FILE, f"{path} is a directory. Use a pattern such as {path.rstrip('/')}/*.")
    stretch = read_stretch(files, path, 1, room.lines, room.chars)
    if not stretch.lines:
        return remarks(stretch, "The file is empty.")
    text, shown = page(stretch.lines, 1, room)
    of = f"of {stretch.total}" if stretch.total else "of many more"
    cut = f"(Lines 1 to {shown} {of}; go on with read_file and offset={shown + 1}.)"
    is_cut = stretch.total is None or shown < stretch.total
    return "\n".join(part for part in (text, cut if is_cut else "", remarks(stretch)) if part)
