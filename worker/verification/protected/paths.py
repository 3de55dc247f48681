"""Protected paths: what a check sees as it was before the run, because it decides what the check does."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ...search.glob_pattern import GlobPattern, expand
from .named_files import Named, Read, named_by, package_scripts

_DATA: Mapping[str, Mapping[str, Any]] = tomllib.loads(Path(__file__).with_name("paths.toml").read_text("utf-8"))
ALWAYS = (*_DATA["always"],)
"""Whatever the caller protects."""
DEFAULT = (*_DATA["tests"], *_DATA["runners"], *_DATA["checkers"], *_DATA["locks"])
"""What is protected where the caller names nothing."""
_PARTS: Mapping[str, Sequence[str]] = _DATA["parts"]
_DESCRIBING: Mapping[str, str] = _DATA["describing"]
_LINES = {name: re.compile(pattern.encode()) for name, pattern in _DATA["lines"].items()}
_WILD = re.compile(r"[*?]")
_SPECIAL = re.compile(r"[\[\]{}\\!]|\*\*")
_BRACES = str.maketrans("", "", "{}")
_LONGEST_LINE = 2000
_OTHER_ENDS = re.compile("\r(?!\n)|[\v\f\x1c-\x1e\x85\u2028\u2029]")
"""Where other parsers of settings, that of pytest among them, begin another line."""
SOURCE_FOLDERS = ("src", "lib", "python")
"""Folders in which the modules of a project lie, where they are not at its top."""
_ROOTS = ("", *(f"{folder}/" for folder in SOURCE_FOLDERS))
"""Where imports of Python begin."""
_MODULE = re.compile(r"([^/.]+)(?:\.[^/]*)?\.(?:so|pyd|pyc|pyi)$")


class Globs:
    """Patterns as in .gitignore: one without a slash is for names at any depth, and one for a directory is for all
    that is below.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        names, self._paths, self._patterns = list[str](), set[str](), list[GlobPattern]()
        for anchored in map(_anchored, patterns):
            name = anchored.removeprefix("**/")
            if anchored == f"**/{name}" and "/" not in name and not _SPECIAL.search(name.translate(_BRACES)):
                names += expand(name)
            elif _SPECIAL.search(anchored) or "*" in anchored or "?" in anchored:
                self._patterns.append(GlobPattern(anchored))
            else:
                self._paths.add(anchored)
        self._names = {name for name in names if not _WILD.search(name)}
        self._ends = tuple(name[1:] for name in names if _WILD.findall(name) == ["*"] and name[0] == "*")
        self._starts = tuple(name[:-1] for name in names if _WILD.findall(name) == ["*"] and name[-1] == "*")
        others = [name for name in names if _WILD.search(name) and not (name[0] == "*" or name[-1] == "*")]
        others += [name for name in names if len(_WILD.findall(name)) > 1]
        self._others = re.compile("|".join(map(_regular, others)) or r"(?!)")
        self._known: dict[str, bool] = {"": False}

    def match(self, path: str) -> bool:
        """Whether a pattern matches the path, or a directory that it is in."""
        folder, _, name = path.rpartition("/")
        if folder not in self._known:
            self._known[folder] = self.match(folder)
        return (
            self._known[folder]
            or name in self._names
            or path in self._paths
            or name.endswith(self._ends)
            or name.startswith(self._starts)
            or self._others.fullmatch(name) is not None
            or any(pattern.matches(path) for pattern in self._patterns)
        )


def _anchored(pattern: str) -> str:
    bare = pattern.strip("/").removesuffix("/**").removesuffix("/")
    is_anchored = "/" in pattern.rstrip("/")
    return bare if is_anchored else f"**/{bare}"


def _regular(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")


OF_TESTS = Globs(_DATA["tests"])
"""Files of tests, and what they compare with, by the usual layouts."""
OF_LOCKS = Globs(_DATA["locks"])
"""Files that name the versions to install."""
_OBEYED = Globs(
    (
        *(*_DATA["runners"], "conftest.py", "sitecustomize.py", "usercustomize.py", "*.pth"),
        *("test_*.py", "*_test.py", "*_test.go", "*.test.*", "*.spec.*"),
    )
)
_TEMPORARY = Globs(("__pycache__", "node_modules", "*.timestamp-*", "*.snap", "*.new", "*.tmp"))
_BUILT = {"build", "dist"}
"""Folders that builds write, and that pytest does not enter."""
_BUILT_NOT_IN_PYTHON = _BUILT | {"out", "target", "coverage"}
_IN_PYTHON = (".py", ".pth")


def is_obeyed(path: str) -> bool:
    """Whether a runner of tests finds a file by its name, and executes or obeys it.

    Files that a build has written do not count, unless its folder is among tests.
    """
    *folders, name = path.split("/")
    if not _OBEYED.match(name) or _TEMPORARY.match(path):
        return False
    built = _BUILT if name.endswith(_IN_PYTHON) else _BUILT_NOT_IN_PYTHON
    at = next((at for at, folder in enumerate(folders) if folder in built), None)
    return at is None or OF_TESTS.match("/".join(folders[:at]))


class Protection:
    """Decides which changes a check does not see.

    Args:
        asked: The caller's patterns, or None for the default.
        lines: The command lines of the checks; what they name is protected by default.
        task: The words of the task.
        read: Reads a file of the base.
    """

    def __init__(
        self, asked: Sequence[str] | None, lines: Sequence[str] = (), task: str = "", read: Read | None = None
    ) -> None:
        by_default = asked is None
        self._read = read or (lambda _: None)
        self._named = named_by(lines, task, self._read, _DATA["programs"]) if by_default else Named()
        self._globs = Globs((*ALWAYS, *((*DEFAULT, *self._named.patterns) if asked is None else asked)))
        self._by_default = by_default

    @property
    def named(self) -> set[str]:
        """The paths that the command lines name."""
        return self._named.paths

    def holds(self, path: str, contents: Callable[[], tuple[bytes, bytes]]) -> bool:
        """Whether the change of this path is not seen. ``contents`` reads what it holds before and after."""
        if self._by_default and _describes_only(path, contents):
            return False
        if self._globs.match(path):
            return True
        if not self._by_default:
            return False
        if path in self._named.paths or self._is_below_named(path) or self._shadows(path):
            return True
        steers = _steers(path, self._named.scripts.get(path, ()))
        return steers is not None and steers(*contents())

    def _is_below_named(self, path: str) -> bool:
        """Whether a directory of the path is named: a folder of tests, or a program that is replaced by a folder."""
        return any(path[:at] in self._named.paths for at in _ends(path))

    def _shadows(self, path: str) -> bool:
        """Whether Python imports this in place of a protected module or of a library that tests are made with.

        A package comes before a module of the same name, and so do compiled modules.
        """
        for end in _ends(path):
            module = f"{path[:end]}.py"
            if (self._globs.match(module) or module in self._named.paths) and self._read(module) is not None:
                return True
        found = _MODULE.search(path)
        if found and (
            self._globs.match(module := f"{path[: found.start()]}{found[1]}.py") or module in self._named.paths
        ):
            return True
        for root in _ROOTS:
            name = re.split(r"[/.]", path.removeprefix(root), maxsplit=1)[0] if path.startswith(root) else ""
            places = (f"{root}{name}.py", f"{root}{name}/__init__.py")
            if name in _DATA["shadows"] and not any(self._read(place) is not None for place in places):
                return path.endswith((".py", ".so", ".pyd"))
        return False


def _ends(path: str) -> list[int]:
    return [at for at, char in enumerate(path) if char == "/"]


def _describes_only(path: str, contents: Callable[[], tuple[bytes, bytes]]) -> bool:
    """Whether no setting changed in a file of settings but those by which nothing is selected or judged.

    A new file may take the place of another one, also without a setting.
    """
    name = path.rpartition("/")[2]
    if name not in ("pytest.ini", ".pytest.ini", "tox.ini"):
        return False
    before, after = contents()
    try:
        return bool(before and after) and of_ini(before, b"", ["*"], ()) == of_ini(after, b"", ["*"], ())
    except (ValueError, ConfigError):
        return False


def _steers(path: str, scripts: Iterable[str]) -> Callable[[bytes, bytes], bool] | None:
    """Returns what decides whether a part about checks changed, for a file that has more than that."""
    name = path.rpartition("/")[2]
    if name in _LINES:
        return _differs(lambda data, _: [line for line in data.splitlines() if _LINES[name].search(line)])
    if name in _PARTS:
        return _differs(lambda data, before: _READERS[name](data, before, _PARTS[name], scripts))
    return None


def _differs(part: Callable[[bytes, bytes], Any]) -> Callable[[bytes, bytes], bool]:
    """Returns whether a part of a file, read from it and the file before, is another one; so is what is unreadable."""

    def steers(before: bytes, after: bytes) -> bool:
        try:
            return part(before, before) != part(after, before)
        except (ValueError, ConfigError, AttributeError, TypeError, RecursionError):
            return True

    return steers


def _at(settings: Any, dotted: str) -> Any:
    for key in dotted.split("."):
        settings = settings.get(key) if isinstance(settings, dict) else None
    return settings


def _of_toml(data: bytes, _: bytes, parts: Sequence[str], __: Iterable[str]) -> Any:
    settings = tomllib.loads(data.decode())
    for path in _DESCRIBING:
        above, key = path.rpartition(".")[::2]
        if isinstance(table := _at(settings, above), dict):
            table.pop(key, None)
    return {part: _at(settings, part) for part in parts}


def of_ini(data: bytes, _: bytes, parts: Sequence[str], __: Iterable[str]) -> Any:
    parser = ConfigParser(interpolation=None, strict=False)
    text = data.decode()
    if any(len(line) > _LONGEST_LINE for line in text.split("\n")):
        raise ValueError("the parser's time grows with the square of a line's length")
    if _OTHER_ENDS.search(text):
        raise ValueError("two parsers may read different settings in it")
    parser.read_string(text)
    wanted = [name for name in (*parser.sections(), "DEFAULT") if any(fnmatchcase(name, part) for part in parts)]
    return {
        name: {key: value for key, value in parser[name].items() if f"{name}.{key}" not in _DESCRIBING}
        for name in wanted
    }


def _of_package(data: bytes, before: bytes, parts: Sequence[str], named: Iterable[str]) -> Any:
    """Scripts may be added, but for those that the checks name and those that npm runs before and after others."""
    package = json.loads(data or b"{}")
    scripts, known = package.get("scripts", {}), package_scripts(before)
    wanted = {*known, *named}
    kept = {name: text for name, text in scripts.items() if name in wanted or name.startswith(("pre", "post", "test"))}
    return [kept, *(package.get(name) for name in parts)]


def _of_json(data: bytes, _: bytes, parts: Sequence[str], __: Iterable[str]) -> Any:
    return [json.loads(data or b"{}").get(name) for name in parts]


_READERS = {
    "pyproject.toml": _of_toml,
    "Cargo.toml": _of_toml,
    "setup.cfg": of_ini,
    "package.json": _of_package,
    "composer.json": _of_json,
}
"""How the parts of a file are read."""
