"""Suspicions: added lines and files that may bend a check. A scan proves nothing; it takes a good verdict back."""

from __future__ import annotations

import re
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ....shared.checks import CommandCheck
from ....shared.facts import Suspicion
from ....shared.patch_format import printable_path
from ....shared.request import DelegationRequest
from ...threads import give_way
from ...workspace.manifest import scan
from ..asked_changes import own_words
from ..grounds.ground import Candidate, protection_of, reader_of
from ..protected.paths import SOURCE_FOLDERS
from ..sources.file_texts import TESTS, FileText, Found
from .project import Project, in_project
from .python_code import RUNNERS, TEST_LIBRARIES, of_python, stdlib_names

MAX_SUSPICIONS = 100
MAX_TEXT = 256 * 1024
"""Bytes of a file that is searched; larger ones are data, or generated."""
MAX_SECONDS = 10.0
"""For all files of a run, to read them and again to search them; those that are left then are not searched."""
_MAX_COMMAND = 16_000
_MAX_LINE = 2000
"""Characters of a line that are searched."""
_DATA: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("rules.toml").read_text("utf-8"))
KINDS: Mapping[str, str] = _DATA["kinds"]
_LIBRARY = re.compile("|".join(_DATA["libraries"]["paths"]))
_OF_OWN_TESTS = ("caller", "tested", "place")
"""Kinds of suspicion that count in tests, too; the others are what tests are made of."""
_OF_CHECKERS = ("silence", "threshold")
_CHECKER = re.compile(
    r"\b(?:mypy|pyright|basedpyright|pytype|pyre|ruff|flake8|pylint|black|bandit|vulture|lint\w*|\w*lint|tsc|vue-tsc|"
    r"typecheck|type-check|biome|prettier|clippy|vet|golangci-lint|staticcheck|rubocop|phpstan|psalm|checkstyle|pmd|"
    r"spotbugs|detekt|cov\w*|nyc|c8|make|just|task|tox|nox|hatch|pre-commit|npm|pnpm|yarn|bun|gradlew?|mvnw?|sh|bash|"
    r"ci|check)\b"
)
"""Commands that may run a checker: elsewhere a comment for one changes nothing."""
_ASSERTION = re.compile(
    r"\braise\s+AssertionError|^\s*assert\b|\bself\.fail\(|\bpytest\.fail\(|\bthrow\s+new\s+(?:Assertion)?Error|"
    r"\bt\.(?:Error|Fatal)f?\(|\bpanic!\(|\bassert\w*!?\("
)
_COMMENTS = {
    **dict.fromkeys(("script", "go", "rust", "jvm", "c", "php"), "//"),
    **dict.fromkeys(("ruby", "perl", "tcl", "awk", "shell"), "#"),
    **dict.fromkeys(("lua", "sql"), "--"),
}
_CLASS = re.compile(
    r"^[ \t]*(?:(?:abstract|final|readonly)[ \t]+){0,3}(?:class|trait|interface|enum)[ \t]+\w", re.MULTILINE
)
_STUBS = (
    r"[^.;!?\n]{0,80}(?:\btype[ -]?stubs?\b|\bstub[ -]?files?\b|\w\.pyi\b|[ `*]\.pyi\b|\bpy\.typed\b|\.d\.ts\b"
    r"|\btype[ -](?:declaration|definition)s?\b)"
)
_ASKS_FOR_STUBS = re.compile(
    r"(?:^|[.:;,!\n]|\b(?:and|then|please|also))[\s*-]{0,8}"
    rf"(?:add|create|generate|include|provide|publish|ship|write)\b{_STUBS}(?![^.;!\n]{{0,80}}\?)",
    re.IGNORECASE,
)
_FORBIDS_STUBS = re.compile(rf"(?:\b(?:never|no|not|rather|without)\b|n['’]t\b){_STUBS}", re.IGNORECASE)
_QUOTED = re.compile(r"[\"'`](?:node:)?(\w+)(?:/\w+)?(?=[\"'`])")


class _Around:
    """What a file has besides a line, read once."""

    def __init__(self, text: str) -> None:
        self._quoted = {found[1].replace("_", "") for found in _QUOTED.finditer(text)}
        self._has_class = _CLASS.search(text) is not None

    def has(self, found: re.Match[str]) -> bool:
        """Whether the file has the modules that a line names, and no classes where it is indented."""
        groups = found.groupdict()
        names = [name.replace("_", "").lower() for key in ("module", "other") if (name := groups.get(key))]
        return {*names} <= self._quoted and not (groups.get("indented") and self._has_class)


@dataclass(frozen=True, slots=True)
class _Pattern:
    kind: str
    suffixes: frozenset[str]
    find: re.Pattern[str]
    but: re.Pattern[str] | None
    comment: str

    def counts(self, line: str, around: _Around) -> bool:
        """Whether a line that fits counts in its file, by the groups of the pattern."""
        return not self.find.groupindex or any(map(around.has, self.find.finditer(line)))

    def fits(self, line: str) -> bool:
        if self.comment and self.kind not in _OF_CHECKERS and line.lstrip().startswith((self.comment, "* ", "/*")):
            return (self.kind == "skip" or line.startswith("//go:")) and bool(self.find.search(line))
        return bool(self.find.search(line))

    def skip(self, line: str) -> str:
        """Returns what a line skips, and when: the innermost parentheses around that, else the whole line."""
        found = self.find.search(line)
        return _in_parentheses(line, found.start()) if found else ""


def _in_parentheses(line: str, at: int) -> str:
    begin, depth = at, 0
    while begin >= 0 and depth >= 0:
        begin -= 1
        depth += (line[begin : begin + 1] == ")") - (line[begin : begin + 1] == "(") if begin >= 0 else 0
    end, depth = at, 0
    while begin >= 0 and end < len(line) and depth >= 0:
        depth += (line[end] == "(") - (line[end] == ")")
        end += 1
    return line[begin:end] if begin >= 0 and depth < 0 else line.strip()


def _patterns() -> Iterator[_Pattern]:
    for row in _DATA["pattern"]:
        for language in row["of"]:
            suffixes = frozenset(_DATA["languages"][language])
            but = re.compile(row["but"]) if "but" in row else None
            yield _Pattern(row["kind"], suffixes, re.compile(row["find"]), but, _COMMENTS.get(language, ""))


_PATTERNS = tuple(_patterns())


def suspicions_of(candidate: Candidate, request: DelegationRequest) -> list[Suspicion]:
    """Returns what is suspicious in the changes that the checks see. Blocks; raises OSError."""
    commands = [item.run for item in request.verify if isinstance(item, CommandCheck)]
    removed = {each.path for each in candidate.seen if not each.new}
    left = {path for path in scan(candidate.changed.base) if path not in removed}
    files, base = [*_texts(candidate)], candidate.changed.base
    named = protection_of(request, base).named
    nested = [each.path for each in candidate.changed.differences if each.new and each.path.endswith("/.git")]
    found = suspicions(files, commands, left, request.task)
    found += in_project(files, Project(left, reader_of(base), commands, named, nested, request.task))
    found = sorted({*found})[:MAX_SUSPICIONS]
    return [Suspicion(path=each.path, line=each.line or None, kind=each.kind) for each in found]


def in_own_tests(path: str, before: str, text: str) -> list[Found]:
    """Returns the added lines by which a test that the run wrote may look at more than what the code does."""
    lines = text[:MAX_TEXT].splitlines()
    added = sorted(_added(before.splitlines(), lines))
    found = {
        Found(path, number, row["kind"])
        for number in added
        for row in _DATA["own_test"]
        if re.search(row["find"], lines[number - 1][:_MAX_LINE])
    }
    if path.endswith(".py"):
        kinds = (Found(path, number, kind) for number, kind, _ in of_python(text[:MAX_TEXT]))
        found |= {each for each in kinds if each.line in added and each.kind in _OF_OWN_TESTS}
    return sorted(found)


def _texts(candidate: Candidate) -> Iterator[FileText]:
    deadline = time.monotonic() + MAX_SECONDS
    for path, contents in candidate.sources():
        give_way()
        if time.monotonic() > deadline:
            return
        before, after = contents()
        if max(len(before), len(after)) <= MAX_TEXT:
            yield FileText(path, before.decode("utf-8", "replace"), after.decode("utf-8", "replace"))


def suspicions(
    files: Iterable[FileText], commands: Sequence[str], known: Iterable[str] = (), task: str = ""
) -> list[Found]:
    """Returns what is suspicious in these changes, but in tests, which the run may write. Blocks.

    Args:
        files: The changed files that the checks see.
        commands: The lines of the checks: what silences a checker counts where one of them may run one.
        known: The paths of the files that were there before the run, and are not removed.
        task: What the run was to do: it may ask for types beside code.
    """
    runs_checker = any(_CHECKER.search(command[:_MAX_COMMAND]) for command in commands)
    before, found, deadline = set(known), set[Found](), time.monotonic() + MAX_SECONDS
    with_types = None if _asks_for_stubs(task) else _folders_with_types(before)
    for file in files:
        if time.monotonic() > deadline:
            break
        if TESTS.match(file.path):
            continue
        found |= set(_of_file(file))
        if not file.before:
            found |= set(_of_name(file.path, before))
            if with_types is not None and (code := _code_beside(file.path, before)) and code not in with_types:
                found.add(Found(file.path, 0, "silence"))  # a checker of types reads it in place of the code
    wanted = [each for each in sorted(found) if runs_checker or each.kind not in _OF_CHECKERS]
    return [Found(printable_path(each.path), each.line, each.kind) for each in wanted[:MAX_SUSPICIONS]]


def _of_file(file: FileText) -> Iterator[Found]:
    suffix = PurePosixPath(file.path).suffix.lower()
    lines = file.after.splitlines()
    added = _added(file.before.splitlines(), lines)
    patterns = [each for each in _PATTERNS if suffix in each.suffixes and not (each.but and each.but.search(file.path))]
    searched = [(number, lines[number - 1][:_MAX_LINE]) for number in sorted(added) if lines[number - 1].strip()]
    around = _Around(file.after)
    for pattern in patterns:
        give_way()
        skips = _more_skips(pattern, file, lines) if pattern.kind == "skip" else None
        for number, line in searched:
            if pattern.fits(line) and (skips is None or pattern.skip(line) in skips) and pattern.counts(line, around):
                yield Found(file.path, number, pattern.kind)
    if suffix in (".py", ".pyw"):
        now = [*of_python(file.after, file.before)]
        before = of_python(file.before) if any(kind == "skip" for _, kind, _ in now) else ()
        known = Counter(code for _, kind, code in before if kind == "skip")
        more = Counter(code for _, kind, code in now if kind == "skip") - known
        for number, kind, code in now:
            if number in added and (kind != "skip" or code in more):
                yield Found(file.path, number, kind)
    if file.after and any(_ASSERTION.search(line[:_MAX_LINE]) for line in _gone(file.before, file.after)):
        yield Found(file.path, 0, "assertion")


def _more_skips(pattern: _Pattern, file: FileText, lines: Sequence[str]) -> Counter[str]:
    """Returns what is skipped more often than before the run."""
    before, now = (
        Counter(pattern.skip(line) for line in (each[:_MAX_LINE] for each in of) if pattern.fits(line))
        for of in (file.before.splitlines(), lines)
    )
    return now - before


def _added(before: Sequence[str], after: Sequence[str]) -> set[int]:
    """Returns the numbers of the lines that are new; a line that moved is not."""
    left, found = Counter(line.strip() for line in before), set[int]()
    for number, line in enumerate(after, 1):
        if left[line.strip()] > 0:
            left[line.strip()] -= 1
        else:
            found.add(number)
    return found


def _gone(before: str, after: str) -> Iterator[str]:
    """Returns lines that are no longer there, where what remains has fewer assertions than before."""
    if _asserting(after) >= _asserting(before):
        return iter(())
    lost = Counter(line.strip() for line in before.splitlines()) - Counter(line.strip() for line in after.splitlines())
    return iter(
        [line for line in lost if "raise AssertionError" in line or "fail(" in line or "AssertionError(" in line]
    )


def _asserting(text: str) -> int:
    return sum(_ASSERTION.search(line[:_MAX_LINE]) is not None for line in text.splitlines())


def _of_name(path: str, known: set[str]) -> Iterator[Found]:
    """Yields a new file whose name takes the place of a library, of a module beside it, or of a program."""
    parts = path.split("/")
    if path.endswith((".dist-info/entry_points.txt", ".egg-info/entry_points.txt")):
        yield Found(path, 0, "runner")
    if parts[-1] in _DATA["programs"]["names"] or _LIBRARY.search(path):
        yield Found(path, 0, "shadow")
    if not path.endswith(".py"):
        return
    if any(_takes_name(parts[:depth], known) for depth in range(1, len(parts) + 1)):
        yield Found(path, 0, "shadow")
    if parts[0] in SOURCE_FOLDERS:
        parts = parts[1:]
    top = parts[0].removesuffix(".py") if parts else ""
    has_package = any(each.startswith((f"{top}/", f"src/{top}/")) for each in known)
    if top in stdlib_names() | TEST_LIBRARIES and not has_package:
        yield Found(path, 0, "shadow")
    if path.endswith("/__init__.py") and f"{path.removesuffix('/__init__.py')}.py" in known:
        yield Found(path, 0, "shadow")


def _takes_name(parts: Sequence[str], known: set[str]) -> bool:
    """Whether a module or a new folder has the name of a runner of tests: a check may put any folder on its path."""
    if parts[-1].removesuffix(".py") not in RUNNERS:
        return False
    folder = "/".join((*parts, ""))
    return not any(each.startswith(folder) for each in known)


def _asks_for_stubs(task: str) -> bool:
    own = own_words(task)
    return bool(_ASKS_FOR_STUBS.search(own)) and not _FORBIDS_STUBS.search(task)


def _folders_with_types(known: set[str]) -> set[tuple[str, str]]:
    """Returns the folders in which types are written beside code already, with the ends of their names."""
    return {code for path in known if (code := _code_beside(path, known))}


def _code_beside(path: str, known: set[str]) -> tuple[str, str] | None:
    """Returns a file's folder and the end of its name if it has the types of code beside it."""
    for end in (".pyi", ".d.ts"):
        stem = path.removesuffix(end)
        if stem != path and any(f"{stem}{each}" in known for each in (".py", ".ts", ".js", ".mjs", ".cjs", ".tsx")):
            return path.rpartition("/")[0], end
    return None
