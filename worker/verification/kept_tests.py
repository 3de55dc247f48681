"""Changes at protected paths that leave the tests from before the run as they are.

Where a check cannot decide without them, it sees them, too: tests that are only added, tests that follow a module to
its new place, fixtures that tests ask for, settings by which a runner finds modules, and released versions in lock
files, which checks do not install. It also sees what the task asks for. All else stays out.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from configparser import Error as ConfigError
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from ..workspace.manifest import LINK, Difference, scan
from ..workspace.source import open_folder
from .asked_changes import NOTHING, AskedChanges
from .grounds.ground import Candidate, reader_of, write
from .kept_python import fixtures_of, kept_python, reaches_further
from .protected.paths import OF_LOCKS, SOURCE_FOLDERS, Protection, of_ini
from .reports.states import Report
from .runners.execution import Observed
from .sources.broken_sources import CODE, broken_content, broken_functions
from .sources.functions_before import with_functions_before

_MAX_FILES = 300
_SKIPPED = {"node_modules", "target", ".venv", "venv", "vendor", ".git"}
_BINDING = r"(?:\{[^{}]*\}|\w+)"
_REQUIRE = rf"({_BINDING})\s*=\s*require\(\s*(['\"])([^'\"\n]+)\2\s*\)"
_REQUIRES = re.compile(
    rf"^[ \t]*(?:const|let|var)\s+{_BINDING}\s*=\s*require\([^()\n]*\)"
    rf"(?:\s*,\s*{_BINDING}\s*=\s*require\([^()\n]*\))*[ \t]*;?[ \t]*$",
    re.MULTILINE,
)
_IMPORT = re.compile(
    rf"^[ \t]*import\s+(?:\*\s*as\s+)?({_BINDING})\s+from\s+(['\"])([^'\"\n]+)\2[ \t]*;?[ \t]*$", re.MULTILINE
)
_LINE_END = re.compile("[\r\n\u2028\u2029]")
_SCRIPTS = (".js", ".mjs", ".cjs", ".ts", ".mts", ".jsx", ".tsx")
_ALIAS, _ALIASED = re.compile(r"\^[@~#][\w-]*/\(\.\*\)\$"), re.compile(r"<rootDir>/[\w./-]*\$1")
_ON_DISK = re.compile(
    r"^\s*--?\w|\b(?:file|link|portal|exec):|\b(?:path|directory|editable|virtual)\s*=|(?:^|[\s'\"=@])\.{0,2}/"
)
"""In a line of a lock file: an option of pip, or a package that lies on this machine."""
_PERL_PATHS = frozenset(("-l", "--lib", "-r", "--recurse"))


@dataclass(frozen=True, slots=True)
class KeptTests:
    """What the changes at protected paths do. ``moved``: files of tests by their former paths."""

    paths: Sequence[str]
    moved: Mapping[str, str] = field(default_factory=dict[str, str])
    added: frozenset[str] = frozenset()
    """Files of tests that are new: that these pass proves nothing."""
    adds_tests: bool = False
    asked: frozenset[str] = frozenset()
    """Files that the task asks to change."""

    @property
    def are_locks(self) -> bool:
        """Whether no other file than lock files changed: all tests are those from before the run."""
        return all(map(OF_LOCKS.match, self.paths))

    def on_base(self, base: Observed) -> Observed:
        """Returns what the base did, with the tests of moved files under their present names."""
        if not (base.report and self.moved):
            return base
        report = Report(finished=base.report.finished, stopped=base.report.stopped, bent=base.report.bent)
        for id, state in base.report.tests.items():
            place = base.report.places.get(id)
            report.add(self._named(id), state, place and replace(place, file=self._there(place.file)))
        return replace(base, report=report)

    def _named(self, id: str) -> str:
        for old, new in self.moved.items():
            for before, now in ((old, new), (_dotted(old), _dotted(new))):
                if id == before or id.startswith((f"{before}::", f"{before}.")):
                    return now + id.removeprefix(before)
        return id

    def _there(self, file: str) -> str:
        return next((file.removesuffix(old) + new for old, new in self.moved.items() if file.endswith(f"/{old}")), file)


def _dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def kept_tests(seen: Candidate, whole: Candidate, asked: AskedChanges = NOTHING) -> KeptTests | None:
    """Returns what the changes that a check did not see do to tests; None where one may weaken them. Blocks.

    Args:
        seen: The changes that it saw.
        whole: All of them.
        asked: What the task asks to change.
    """
    known = {each.path for each in seen.seen}
    held = [each for each in whole.seen if each.path not in known]
    if not held or len(held) > _MAX_FILES:
        return None
    mine = {each.path for each in held if _is_asked(whole, each, asked)}
    kept = _Judge(seen, whole, [each for each in held if each.path not in mine]).judge()
    return kept and replace(kept, paths=[each.path for each in held], asked=frozenset(mine))


def _is_asked(whole: Candidate, each: Difference, asked: AskedChanges) -> bool:
    """Whether the task asks for a change, and it does no more than change what tests state."""
    if each.new and each.new.git_mode == LINK:
        return False
    before, after = (data.decode("utf-8", "replace") for data in whole.contents(each))
    return asked.hold(each.path, before) and not (each.path.endswith(".py") and reaches_further(before, after))


@dataclass(slots=True)
class _Judge:
    seen: Candidate
    whole: Candidate
    held: Sequence[Difference]
    adds_tests: bool = False
    follows: bool = False
    """Whether something looks for code at another place than before."""

    def judge(self) -> KeptTests | None:
        moved = self._moved(self.seen.seen)
        created = [each for each in self.seen.seen if each.new and not each.old and each.path.endswith(CODE)]
        modules = {_module(old): _module(new) for old, new in moved.items()}
        tests = dict[str, str]()
        for gone in [each for each in self.held if not each.new]:
            pairs = (each for each in self.held if each.new and not each.old and self._is_same(gone, each, modules))
            if (found := next(pairs, None)) is None:
                return None
            tests[gone.path] = found.path
            self.follows = True
        own = {name for path in self._paths() if path.endswith(".py") for name in path.removesuffix(".py").split("/")}
        for each in self.held:
            if each.new and each.path not in tests.values() and not self._is_kept(each, own, modules):
                return None
        if self.follows and any(each.path not in moved.values() for each in created):
            return None  # what is found at the other place may be made for the tests
        added = {each.path for each in self.held if not each.old} - {*tests.values()}
        return KeptTests([each.path for each in self.held], tests, frozenset(added), self.adds_tests)

    def _moved(self, changes: Sequence[Difference]) -> dict[str, str]:
        """Returns files of code that are at another path with the content that they had."""
        gone = {each.old.sha256: each.path for each in changes if each.old and not each.new}
        there = [each for each in changes if each.new and not each.old and each.path.endswith(CODE)]
        return {gone[each.new.sha256]: each.path for each in there if each.new and each.new.sha256 in gone}

    def _paths(self) -> Iterator[str]:
        removed = {each.path for each in self.whole.seen if not each.new}
        yield from (path for path in scan(self.whole.changed.base) if path not in removed)
        yield from (each.path for each in self.whole.seen if each.new)

    def _texts(self, each: Difference) -> tuple[str, str] | None:
        try:
            before, after = (data.decode() for data in self.whole.contents(each))
        except UnicodeDecodeError:
            return None
        return before, after

    def _is_same(self, gone: Difference, there: Difference, modules: Mapping[str, str]) -> bool:
        """Whether a file of tests is one that was elsewhere, but for the names of moved modules."""
        before, after = self._texts(gone), self._texts(there)
        if before is None or after is None or PurePosixPath(gone.path).suffix != PurePosixPath(there.path).suffix:
            return False
        if not gone.path.endswith(".py"):
            return before[0] == after[1]
        return kept_python(there.path, before[0], after[1], (), modules)

    def _is_kept(self, each: Difference, own: set[str], modules: Mapping[str, str]) -> bool:
        texts, name = self._texts(each), each.path.rpartition("/")[2]
        if texts is None:
            return False
        if OF_LOCKS.match(each.path):
            return not any(map(_ON_DISK.search, {*texts[1].splitlines()} - {*texts[0].splitlines()}))
        if name in _LOOKUPS or name == ".proverc":
            self.follows = True
            return finds_only(each.path, *texts, self._names)
        if name == "conftest.py" and self._is_defined(fixtures_of(texts[1]) - fixtures_of(texts[0])):
            return False
        if each.path.endswith(".py") and not kept_python(each.path, *texts, own):
            self.follows = True
            return bool(texts[0]) and kept_python(each.path, *texts, own, modules)
        if each.path.endswith(".py"):
            self.adds_tests = self.adds_tests or name != "conftest.py"
            return True
        return each.path.endswith(_SCRIPTS) and bool(texts[0]) and same_script(*texts)

    def _is_defined(self, names: Collection[str]) -> bool:
        """Whether the project has a function of one of these names: a fixture may take its place."""
        either = "|".join(map(re.escape, names))
        pattern = re.compile(rf"\bdef\s+(?:{either})\b|\bname\s*=\s*['\"](?:{either})['\"]".encode())
        read = reader_of(self.whole.changed.base)
        texts = (read(path) for path in scan(self.whole.changed.base) if path.endswith(".py"))
        return bool(names) and any(text is not None and pattern.search(text) for text in texts)

    def _names(self, folder: str) -> set[str]:
        """Returns the modules and packages in a folder."""
        inside = [path for path in self._paths() if folder in (".", "") or path.startswith(f"{folder}/")]
        cut = 0 if folder in (".", "") else len(folder) + 1
        tops = {path[cut:].partition("/")[0].removesuffix(".py") for path in inside if path.endswith(".py")}
        return tops - {"tests", "test", "conftest", "setup", *SOURCE_FOLDERS}


def _module(path: str) -> str:
    top, _, below = path.partition("/")
    inside = below if below and top in SOURCE_FOLDERS else path
    return _dotted(inside.removesuffix("/__init__.py"))


def same_script(before: str, after: str) -> bool:
    """Whether two scripts import the same by the same names, and are the same but for that."""
    return _script(before) == _script(after)


def _script(text: str) -> tuple[dict[str, str], str]:
    """Returns what a script imports, by what it is bound to, and all else: lines, as a comment ends with its line."""
    found = dict[str, str]()

    def note(binding: str, module: str) -> None:
        found[re.sub(r"\s*:\s*", " as ", " ".join(binding.split())).replace("{ ", "{").replace(" }", "}")] = module

    for statement in _REQUIRES.finditer(text):
        for binding, _, module in re.findall(_REQUIRE, statement[0]):
            note(binding, module)
    for binding, _, module in _IMPORT.findall(text):
        note(binding, module)
    rest = _IMPORT.sub("", _REQUIRES.sub("", text))
    return found, "\n".join(line.strip() for line in _LINE_END.split(rest) if line.strip())


_LOOKUPS: Mapping[str, Sequence[str]] = {
    "pyproject.toml": ("tool.pytest.ini_options.pythonpath", "tool.pytest.pythonpath"),
    "pytest.ini": ("pytest.pythonpath",),
    "tox.ini": ("pytest.pythonpath",),
    "setup.cfg": ("tool:pytest.pythonpath",),
    "package.json": ("jest.moduleNameMapper",),
}
"""Settings by which a runner of tests finds modules."""


def finds_only(path: str, before: str, after: str, names: Callable[[str], Collection[str]]) -> bool:
    """Whether no setting changed but one by which modules are found that have no other place.

    ``names``: the modules and packages in a folder.
    """
    name = path.rpartition("/")[2]
    if name == ".proverc":
        return not before and {*after.split()} <= _PERL_PATHS
    if not before:
        return False
    try:
        (old, _), (new, now) = (_without(name, text) for text in (before, after))
    except (ValueError, ConfigError, RecursionError, AttributeError):
        return False
    if old != new:
        return False
    if name == "package.json":
        aliases = now.items() if isinstance(now, dict) else [("", now)] * (now is not None)
        return all(_ALIAS.fullmatch(key) and _ALIASED.fullmatch(str(value)) for key, value in aliases)
    if not isinstance(now, str | list | None):
        return False
    places = now.split() if isinstance(now, str) else [str(each) for each in now or ()]
    folders = [os.path.normpath(each) for each in places]
    if any(each.startswith(("/", "..")) for each in folders):
        return False
    known = [names(each) for each in {".", *SOURCE_FOLDERS, *folders}]
    return sum(map(len, known)) == len(set[str]().union(*known))


def _without(name: str, text: str) -> tuple[Any, Any]:
    """Returns the settings without what finds modules, and that."""
    settings: Any
    if name.endswith(".toml"):
        settings = tomllib.loads(text)
    elif name.endswith(".json"):
        settings = json.loads(text)
    else:
        settings = of_ini(text.encode(), b"", ["*"], ())
    found = None
    for path in _LOOKUPS[name]:
        above, _, key = path.rpartition(".")
        table = settings
        for part in above.split("."):
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict) and key in table:
            found = table.pop(key)
    return settings, found


Breaking = Literal["false", "true", "syntax"]
"""How code is broken: functions that answer wrongly, in Python with what is false or true, or the syntax of files."""


def break_functions(ground: Path, tests: Protection, how: Breaking = "false") -> bool:
    """Breaks every function of the code on a ground, but of tests. Returns whether there was one. Blocks."""
    found = 0
    with open_folder(ground) as root:
        for folder, folders, names in os.walk(ground):
            folders[:] = [name for name in folders if name not in _SKIPPED]
            for name in names:
                path = str(Path(folder, name).relative_to(ground))
                is_code = name.endswith(CODE) or (how == "syntax" and "." not in name)  # scripts often have no suffix
                if found > _MAX_FILES or not is_code or tests.holds(path, lambda: (b"", b"")):
                    continue
                if (content := _broken(path, Path(folder, name), how)) is not None:
                    write(root, path, content)
                    found += 1
    return found > 0


def _broken(path: str, file: Path, how: Breaking) -> bytes | None:
    if file.is_symlink() or file.stat().st_size > 1 << 20:
        return None
    data = file.read_bytes()
    if how == "syntax":
        return broken_content(path, b"", data, statically=True)
    if path.endswith(".py"):
        text = with_functions_before("", data.decode("utf-8", "surrogateescape"), is_true=how == "true")
        return None if text is None else text.encode("utf-8", "surrogateescape")
    return broken_functions(path, b"", data)
