"""What .gitignore files leave out, as git itself decides it.

Patterns in a workspace may be hostile, and they are matched in this process: libraries that turn a line into one
regular expression take minutes for ``*a*a*a*a*a*b``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shared.errors import ToolError
from worker.files import Files
from worker.search.globbing import Parts, fits, name_pattern, over_names

_MAX_BYTES = 1024 * 1024
_MAX_JOINED = 500
"""Patterns of names that are asked about all at once before each is asked by itself."""
_ESCAPED = re.compile(r"\\(.)")
_WILD = re.compile(r"[*?\[]")
_UNCLOSED = re.compile(r"\[(?![!^]?\]?[^\]]*\])")


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line; ``name`` for a pattern without a slash, ``path`` for one with.

    ``first`` is the first name of a path where it is spelt out: most lines are then never compared.
    """

    ignores: bool
    only_directories: bool
    name: re.Pattern[str] | None
    path: Parts = ()
    first: str | None = None


class GitIgnore:
    """One .gitignore file. ``opinion`` is None where it says nothing."""

    def __init__(self, text: str) -> None:
        self._rules = [rule for line in text.removeprefix("\ufeff").split("\n") if (rule := _rule(line))]
        self._by_first: dict[str | None, list[tuple[int, _Rule]]] = {}
        for at, rule in enumerate(self._rules):
            if not rule.name:
                self._by_first.setdefault(rule.first, []).append((at, rule))
        self._by_name = [(at, rule) for at, rule in enumerate(self._rules) if rule.name][::-1]
        names = {rule.name.pattern for _, rule in self._by_name if rule.name}
        self._some_name = re.compile("|".join(names) if len(names) <= _MAX_JOINED else "") if names else None

    def opinion(self, names: Sequence[str], *, directory: bool) -> bool | None:
        """Whether the path, given by its names below the file's directory, is ignored: the last line that fits."""
        best = self._last_by_name(names[-1], directory)
        for first in (names[0], None) if self._by_first else ():
            for at, rule in self._by_first.get(first, ()):
                if at > best and (directory or not rule.only_directories) and fits(rule.path, names):
                    best = at
        return self._rules[best].ignores if best >= 0 else None

    def _last_by_name(self, name: str, directory: bool) -> int:
        if self._some_name is None or not self._some_name.match(name):
            return -1
        for at, rule in self._by_name:
            if rule.name and (directory or not rule.only_directories) and rule.name.match(name):
                return at
        return -1


def _rule(line: str) -> _Rule | None:
    line = line.removesuffix("\r")
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    if line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    pattern = line if ignores else line[1:]
    only_directories = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    if not pattern or (pattern.endswith("\\") and not pattern.endswith("\\\\")):
        return None
    parts = [_unescaped(part) for part in pattern.removeprefix("/").split("/")]
    if any(map(_UNCLOSED.search, parts)):
        return None
    if "/" not in pattern:
        return _Rule(ignores, only_directories, name_pattern(parts[0]))
    first = None if _WILD.search(parts[0]) else parts[0]
    return _Rule(ignores, only_directories, None, over_names(parts), first)


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
    """All .gitignore files of a workspace; the deepest one that has an opinion decides."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: dict[str, Ignored] = {}

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
        if folder not in self._known:
            above, _, name = folder.rpartition("/")
            rules = [((*names, name), rules) for names, rules in self.within(above).rules] if folder else []
            own = self._own(folder) if has_file else None
            self._known[folder] = Ignored([((), own), *rules] if own else rules)
        return self._known[folder]

    def _own(self, folder: str) -> GitIgnore | None:
        try:
            data = self._files.read(f"{folder}/.gitignore" if folder else ".gitignore", _MAX_BYTES)
        except ToolError:
            return None
        return GitIgnore(data.decode("utf-8", "surrogateescape"))
