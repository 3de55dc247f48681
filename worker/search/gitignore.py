"""Rules of .gitignore files, with git's semantics.

Patterns in a workspace may be hostile, and they are matched in this process: libraries that compile a line into one
regular expression take minutes for ``*a*a*a*a*a*b``. Lines that are a literal name, path or suffix are looked up in
tables; only the others are matched one by one, and their number is limited.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...shared.errors import ErrorType, ToolError
from ..workspace.files import Files
from .glob_pattern import PatternParts, compile_parts, fits, fnmatch_escaped, name_pattern

MAX_BYTES = 1024 * 1024
"""Of one .gitignore."""
MAX_LINES = 20_000
"""Patterns of one .gitignore."""
MAX_COMPARED = 500
"""Patterns of one .gitignore that must be matched with every name."""
MAX_LINES_IN_ALL = 100_000
MAX_COMPARED_IN_ALL = 2_000
_ESCAPED = re.compile(r"\\(.)")
_WILD = re.compile(r"[*?\[]")
_UNCLOSED = re.compile(r"\[(?![!^]?\]?[^\]]*\])")


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern that must be matched: ``name`` is set for one without a slash, ``path`` for one with a slash."""

    at: int
    only_directories: bool
    name: re.Pattern[str] | None
    path: PatternParts = ()

    def fits(self, names: Sequence[str]) -> bool:
        return self.name.match(names[-1]) is not None if self.name else fits(self.path, names)


@dataclass(slots=True)
class Budget:
    """How many more patterns are accepted, and how many of these may have to be matched with every name."""

    lines: int = MAX_LINES
    compared: int = MAX_COMPARED


@dataclass(slots=True)
class _LastLine:
    """The number of the last line that matches a file, and a directory; -1 for none."""

    file: int = -1
    directory: int = -1

    def add(self, at: int, *, only_directories: bool) -> None:
        self.directory = at
        self.file = self.file if only_directories else at


@dataclass(slots=True)
class _LiteralLines:
    """The literal lines: by name, by suffix of a name, by path. ``lengths`` are those of the suffixes."""

    names: dict[str, _LastLine] = field(default_factory=dict[str, _LastLine])
    ends: dict[str, _LastLine] = field(default_factory=dict[str, _LastLine])
    paths: dict[tuple[str, ...], _LastLine] = field(default_factory=dict[tuple[str, ...], _LastLine])
    lengths: set[int] = field(default_factory=set[int])

    def last(self, names: Sequence[str]) -> Iterable[_LastLine]:
        name = names[-1]
        if found := self.names.get(name):
            yield found
        for length in self.lengths if self.ends else ():
            if length <= len(name) and (found := self.ends.get(name[len(name) - length :])):
                yield found
        if self.paths and (found := self.paths.get(tuple(names))):
            yield found


class GitIgnore:
    """The rules of one .gitignore file.

    ``complete`` is False if the file has more lines than the limits or the ``budget`` allow: the first ones count.
    """

    def __init__(self, text: str, budget: Budget | None = None) -> None:
        self.complete = True
        self._ignores: list[bool] = []
        self._literals = _LiteralLines()
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

    def decision(self, names: Sequence[str], *, directory: bool) -> bool | None:
        """Returns whether the last matching line ignores the path; None if no line matches.

        Args:
            names: The parts of the path relative to the directory of the .gitignore.
            directory: Whether the path is a directory.
        """
        best = -1
        for last in self._literals.last(names):
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
        if any(_UNCLOSED.search(fnmatch_escaped(part, _ESCAPED)) for part in parts):
            return
        at = len(self._ignores)
        self._ignores.append(ignores)
        budget.lines -= 1
        if last := self._literal_slot(parts, anchored="/" in pattern):
            last.add(at, only_directories=only_directories)
            return
        budget.compared -= 1
        ready = [fnmatch_escaped(part, _ESCAPED) for part in parts]
        name, path = (None, compile_parts(ready)) if "/" in pattern else (name_pattern(ready[0]), ())
        self._compared.append(_Rule(at, only_directories, name, path))

    def _literal_slot(self, parts: Sequence[str], *, anchored: bool) -> _LastLine | None:
        """Returns the entry of a literal pattern; None for a pattern that must be matched."""
        if anchored:
            if any(_is_wild(part) or not part for part in parts):
                return None
            return self._literals.paths.setdefault(tuple(map(_unescape, parts)), _LastLine())
        if not _is_wild(parts[0]):
            return self._literals.names.setdefault(_unescape(parts[0]), _LastLine())
        end = parts[0][1:]
        if not parts[0].startswith("*") or _is_wild(end):
            return None
        end = _unescape(end)
        self._literals.lengths.add(len(end))
        return self._literals.ends.setdefault(end, _LastLine())


def _is_wild(part: str) -> bool:
    return _WILD.search(_ESCAPED.sub("", part)) is not None


def _unescape(part: str) -> str:
    return _ESCAPED.sub(lambda found: found[1], part)


class DirectoryRules:
    """The ignore rules of one directory: of its own .gitignore and, where that has no match, of those above it."""

    def __init__(self, rules: Sequence[tuple[tuple[str, ...], GitIgnore]] = ()) -> None:
        self.rules = rules
        """The deepest file first, each with the path from its directory to this one."""

    def __call__(self, name: str, *, directory: bool) -> bool:
        for names, rules in self.rules:
            if (decision := rules.decision((*names, name), directory=directory)) is not None:
                return decision
        return False


class GitIgnoreTree:
    """All .gitignore files of a workspace, read on demand; the deepest one with a matching line decides.

    ``truncated`` are the files of which not all lines are respected, because they exceed the limits. ``outer`` are
    rules from outside the workspace, which decide where no file inside has a matching line.
    """

    def __init__(self, files: Files, outer: Sequence[tuple[tuple[str, ...], GitIgnore]] = ()) -> None:
        self.truncated: list[str] = []
        self._files = files
        self._outer = outer
        self._known: dict[str, DirectoryRules] = {}
        self._left = Budget(MAX_LINES_IN_ALL, MAX_COMPARED_IN_ALL)

    def ignores(self, path: str, *, directory: bool) -> bool:
        """Whether git ignores the path, provided that it does not ignore its parent directory."""
        folder, _, name = path.rpartition("/")
        return self.rules_of(folder)(name, directory=directory)

    def ignores_with_parents(self, path: str) -> bool:
        """Whether git ignores the directory or one of its parents."""
        names = [name for name in path.split("/") if name not in ("", ".")]
        return any(self.ignores("/".join(names[:end]), directory=True) for end in range(1, len(names) + 1))

    def rules_of(self, folder: str, *, has_file: bool = True) -> DirectoryRules:
        """Returns the rules of a directory, "" for the top; ``has_file`` is False if it has no .gitignore."""
        unknown = [folder]
        while unknown[-1] not in self._known and unknown[-1]:
            unknown.append(unknown[-1].rpartition("/")[0])
        for each in reversed(unknown):
            if each not in self._known:
                self._known[each] = self._load_rules(each, has_file=has_file or each != folder)
        return self._known[folder]

    def _load_rules(self, folder: str, *, has_file: bool) -> DirectoryRules:
        above, _, name = folder.rpartition("/")
        outer = [((*names, name), rules) for names, rules in self._known[above].rules] if folder else self._outer
        own = self._load_file(f"{folder}/.gitignore" if folder else ".gitignore") if has_file else None
        return DirectoryRules([((), own), *outer] if own else outer)

    def _load_file(self, path: str) -> GitIgnore | None:
        try:
            data = self._files.read(path, MAX_BYTES)
        except ToolError as error:
            if error.type is ErrorType.FILE_TOO_LARGE:
                self.truncated.append(path)
            return None
        rules = GitIgnore(data.decode("utf-8", "surrogateescape"), self._left)
        if not rules.complete:
            self.truncated.append(path)
        return rules
