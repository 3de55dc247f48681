"""What .gitignore files leave out, as git itself decides it.

Patterns in a workspace may be hostile, and they are matched in this process: libraries that turn a line into one
regular expression take minutes for ``*a*a*a*a*a*b``. Lines that spell a name, a path or the end of a name are looked
up; only the others are compared one by one, and of those there is a limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shared.errors import ErrorType, ToolError
from worker.search.globbing import Parts, fits, name_pattern, over_names
from worker.workspace.files import Files

MAX_BYTES = 1024 * 1024
"""Of one .gitignore."""
MAX_LINES = 20_000
"""Of one .gitignore; lines without a pattern do not count."""
MAX_COMPARED = 500
"""Of one .gitignore: lines that have to be compared with every name."""
MAX_LINES_IN_ALL = 100_000
MAX_COMPARED_IN_ALL = 2_000
_ESCAPED = re.compile(r"\\(.)")
_WILD = re.compile(r"[*?\[]")
_UNCLOSED = re.compile(r"\[(?![!^]?\]?[^\]]*\])")


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line that is compared; ``name`` for a pattern without a slash, ``path`` for one with."""

    at: int
    only_directories: bool
    name: re.Pattern[str] | None
    path: Parts = ()

    def fits(self, names: Sequence[str]) -> bool:
        return self.name.match(names[-1]) is not None if self.name else fits(self.path, names)


@dataclass(slots=True)
class Budget:
    """How many more lines are taken in, and how many of these may have to be compared with every name."""

    lines: int = MAX_LINES
    compared: int = MAX_COMPARED


@dataclass(slots=True)
class _Last:
    """The number of the last line that says something of a file, and of a directory; -1 for none."""

    file: int = -1
    directory: int = -1

    def add(self, at: int, *, only_directories: bool) -> None:
        self.directory = at
        self.file = self.file if only_directories else at


@dataclass(slots=True)
class _Spelled:
    """The lines that are looked up: by name, by the end of a name, by path."""

    names: dict[str, _Last] = field(default_factory=dict[str, _Last])
    ends: dict[str, _Last] = field(default_factory=dict[str, _Last])
    paths: dict[tuple[str, ...], _Last] = field(default_factory=dict[tuple[str, ...], _Last])
    lengths: set[int] = field(default_factory=set[int])

    def last(self, names: Sequence[str]) -> Iterable[_Last]:
        name = names[-1]
        if found := self.names.get(name):
            yield found
        for length in self.lengths if self.ends else ():
            if length <= len(name) and (found := self.ends.get(name[len(name) - length :])):
                yield found
        if self.paths and (found := self.paths.get(tuple(names))):
            yield found


class GitIgnore:
    """One .gitignore file. ``opinion`` is None where it says nothing.

    ``budget`` is what is left of the limits; ``complete`` says whether all lines were inside them. Of a file that
    has too many the first ones count.
    """

    def __init__(self, text: str, budget: Budget | None = None) -> None:
        self.complete = True
        self._ignores: list[bool] = []
        self._spelled = _Spelled()
        self._compared: list[_Rule] = []
        left = budget or Budget()
        own = Budget(min(left.lines, MAX_LINES), min(left.compared, MAX_COMPARED))
        for line in text.removeprefix("\ufeff").split("\n"):
            if (own.lines <= 0 or own.compared <= 0) and line.strip():
                self.complete = False
                break
            self._add(line, own)
        left.lines -= len(self._ignores)
        left.compared -= len(self._compared)
        self._compared.reverse()

    def opinion(self, names: Sequence[str], *, directory: bool) -> bool | None:
        """Whether the path, given by its names below the file's directory, is ignored: the last line that fits."""
        best = -1
        for last in self._spelled.last(names):
            best = max(best, last.directory if directory else last.file)
        for rule in self._compared:
            if rule.at < best:
                break
            if (directory or not rule.only_directories) and rule.fits(names):
                best = rule.at
                break
        return self._ignores[best] if best >= 0 else None

    def _add(self, line: str, budget: Budget) -> None:
        line = line.removesuffix("\r")
        while line.endswith(" ") and not line.endswith("\\ "):
            line = line[:-1]
        if line.startswith("#"):
            return
        ignores = not line.startswith("!")
        pattern = line if ignores else line[1:]
        only_directories = pattern.endswith("/")
        pattern = pattern.removesuffix("/")
        if not pattern or (pattern.endswith("\\") and not pattern.endswith("\\\\")):
            return
        parts = pattern.removeprefix("/").split("/")
        if any(_UNCLOSED.search(_unescaped(part)) for part in parts):
            return
        at = len(self._ignores)
        self._ignores.append(ignores)
        budget.lines -= 1
        if last := self._looked_up(parts, anchored="/" in pattern):
            last.add(at, only_directories=only_directories)
            return
        budget.compared -= 1
        ready = [_unescaped(part) for part in parts]
        name, path = (None, over_names(ready)) if "/" in pattern else (name_pattern(ready[0]), ())
        self._compared.append(_Rule(at, only_directories, name, path))

    def _looked_up(self, parts: Sequence[str], *, anchored: bool) -> _Last | None:
        """Where a line is kept that needs no comparing."""
        if anchored:
            if any(_is_wild(part) or not part for part in parts):
                return None
            return self._spelled.paths.setdefault(tuple(map(_plain, parts)), _Last())
        if not _is_wild(parts[0]):
            return self._spelled.names.setdefault(_plain(parts[0]), _Last())
        end = parts[0][1:]
        if not parts[0].startswith("*") or _is_wild(end):
            return None
        end = _plain(end)
        self._spelled.lengths.add(len(end))
        return self._spelled.ends.setdefault(end, _Last())


def _is_wild(part: str) -> bool:
    return _WILD.search(_ESCAPED.sub("", part)) is not None


def _plain(part: str) -> str:
    return _ESCAPED.sub(lambda found: found[1], part)


def _unescaped(part: str) -> str:
    """The part with a class of one character for every escaped one, which is how fnmatch escapes."""
    return _ESCAPED.sub(lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], part)


class Ignored:
    """What is left out of one directory: by its own .gitignore and, where that says nothing, by those above it."""

    def __init__(self, rules: Sequence[tuple[tuple[str, ...], GitIgnore]] = ()) -> None:
        self.rules = rules
        """The deepest file first, each with the names that lead from its directory to this one."""

    def __call__(self, name: str, *, directory: bool) -> bool:
        for names, rules in self.rules:
            if (opinion := rules.opinion((*names, name), directory=directory)) is not None:
                return opinion
        return False


class Ignoring:
    """All .gitignore files of a workspace; the deepest one that has an opinion decides.

    ``partly`` are those that have too many lines or bytes, or would together: not all of their lines count.
    """

    def __init__(self, files: Files) -> None:
        self.partly: list[str] = []
        self._files = files
        self._known: dict[str, Ignored] = {}
        self._left = Budget(MAX_LINES_IN_ALL, MAX_COMPARED_IN_ALL)

    def ignores(self, path: str, *, directory: bool) -> bool:
        """Whether git ignores the path, given that it does not ignore the directory it is in."""
        folder, _, name = path.rpartition("/")
        return self.within(folder)(name, directory=directory)

    def ignores_or_above(self, path: str) -> bool:
        """The same for a directory whose parents were not looked at."""
        names = [name for name in path.split("/") if name not in ("", ".")]
        return any(self.ignores("/".join(names[:end]), directory=True) for end in range(1, len(names) + 1))

    def within(self, folder: str, *, has_file: bool = True) -> Ignored:
        """What is left out of a directory, "" for the top. ``has_file`` false spares looking for its .gitignore."""
        unknown = [folder]
        while unknown[-1] not in self._known and unknown[-1]:
            unknown.append(unknown[-1].rpartition("/")[0])
        for each in reversed(unknown):
            if each not in self._known:
                self._known[each] = self._ignored(each, has_file=has_file or each != folder)
        return self._known[folder]

    def _ignored(self, folder: str, *, has_file: bool) -> Ignored:
        above, _, name = folder.rpartition("/")
        rules = [((*names, name), rules) for names, rules in self._known[above].rules] if folder else []
        own = self._own(f"{folder}/.gitignore" if folder else ".gitignore") if has_file else None
        return Ignored([((), own), *rules] if own else rules)

    def _own(self, path: str) -> GitIgnore | None:
        try:
            data = self._files.read(path, MAX_BYTES)
        except ToolError as error:
            if error.type is ErrorType.FILE_TOO_LARGE:
                self.partly.append(path)
            return None
        rules = GitIgnore(data.decode("utf-8", "surrogateescape"), self._left)
        if not rules.complete:
            self.partly.append(path)
        return rules
