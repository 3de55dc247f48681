"""Which files of a workspace a search looks at: patterns without backtracking, and what .gitignore leaves out."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from threading import Event

from pathspec import GitIgnoreSpec

from shared.errors import ErrorType, ToolError
from worker.files import TEMPORARY, Entry, Files
from worker.output import PRIVATE_DIR

MAX_ENTRIES = 500_000
MAX_ALTERNATIVES = 256
_MAX_IGNORE_BYTES = 1024 * 1024


class Pattern:
    """A glob: ``*`` and ``?`` stay inside a name, ``**`` goes through directories, ``{a,b}`` and ``[a-z]`` choose."""

    def __init__(self, pattern: str) -> None:
        self._alternatives = [_parts(alternative) for alternative in dict.fromkeys(_expanded(pattern))]

    def matches(self, path: str) -> bool:
        names = path.split("/")
        return any(_fits(parts, names) for parts in self._alternatives)


@lru_cache(maxsize=1024)
def _name_pattern(part: str) -> re.Pattern[str]:
    # fnmatch writes atomic groups, so that no name makes the match slow
    return re.compile(fnmatch.translate(part.replace("[^", "[!")))


def _parts(pattern: str) -> list[re.Pattern[str] | None]:
    """One pattern a name; None is ``**``."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    return [None if part == "**" else _name_pattern(part) for part in parts]


def _fits(parts: Sequence[re.Pattern[str] | None], names: Sequence[str]) -> bool:
    """Whether the whole path fits; ``reached`` holds the parts that are done after each name."""
    reached = _through({0}, parts)
    for name in names:
        after: set[int] = set()
        for at in reached:
            if at < len(parts):
                part = parts[at]
                if part is None:
                    after.add(at)
                elif part.match(name):
                    after.add(at + 1)
        reached = _through(after, parts)
        if not reached:
            return False
    return len(parts) in reached and not (parts and parts[-1] is None and len(names) == 0)


def _through(reached: set[int], parts: Sequence[re.Pattern[str] | None]) -> set[int]:
    """``**`` may also stand for no directory at all."""
    for at in sorted(reached):
        while at < len(parts) and parts[at] is None:
            at += 1
            reached.add(at)
    return reached


def _expanded(pattern: str) -> list[str]:
    """The pattern without braces, once for each alternative."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop()
        found = _innermost(current)
        if found is None:
            done.append(current)
        else:
            start, end = found
            waiting += [current[:start] + choice + current[end + 1 :] for choice in current[start + 1 : end].split(",")]
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS, f"the pattern has more than {MAX_ALTERNATIVES} alternatives in braces"
            )
    return done


def _innermost(pattern: str) -> tuple[int, int] | None:
    """The first braces that hold a comma and no other braces."""
    start = -1
    for at, character in enumerate(pattern):
        if character == "{":
            start = at
        elif character == "}" and start >= 0:
            if "," in pattern[start:at]:
                return start, at
            start = -1
    return None


class Ignoring:
    """The .gitignore files from the workspace's top down; the deepest that has an opinion decides, as in git."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._specs: dict[str, GitIgnoreSpec | None] = {}

    def ignores(self, path: str, *, directory: bool) -> bool:
        """Whether git would ignore the path, given that it does not ignore the directory it is in."""
        folder, rest = path, ""
        while folder:
            folder, _, name = folder.rpartition("/")
            rest = f"{name}/{rest}" if rest else name + ("/" if directory else "")
            spec = self._spec(folder)
            if spec is not None and (opinion := spec.check_file(rest).include) is not None:
                return opinion
        return False

    def ignores_or_above(self, path: str) -> bool:
        """The same for a directory whose parents were not looked at."""
        parts = [part for part in path.split("/") if part not in ("", ".")]
        return any(self.ignores("/".join(parts[:end]), directory=True) for end in range(1, len(parts) + 1))

    def _spec(self, folder: str) -> GitIgnoreSpec | None:
        if folder not in self._specs:
            path = f"{folder}/.gitignore" if folder else ".gitignore"
            try:
                text = self._files.read(path, _MAX_IGNORE_BYTES).decode("utf-8", "replace")
                self._specs[folder] = GitIgnoreSpec.from_lines(text.splitlines())
            except (ToolError, ValueError):
                self._specs[folder] = None
        return self._specs[folder]


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
            if _never(entry, top) or (ignoring and ignoring.ignores(entry.path, directory=is_directory)):
                continue
            if is_directory:
                waiting.append(entry.path)
            elif entry.stat.kind != "other":
                yield entry


def _never(entry: Entry, top: str) -> bool:
    return entry.name == ".git" or entry.path == PRIVATE_DIR or entry.name.startswith(TEMPORARY)
