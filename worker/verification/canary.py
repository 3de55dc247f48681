"""The canary: something is broken that a check must notice, so that a runner that lies is found out.

Of known runners, a sample of the tests that pass is broken, first of those that did not pass before. A laid test alone
would not do: it would have a name of its own, and reports may be falsified by name; and a command that selects tests
would leave it out. A test fails at its end, where its language allows that, because the code that it calls may falsify
the report.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from pathlib import Path
from secrets import SystemRandom, token_hex
from typing import Self

from ...shared import syntax_tree
from ...shared.libc import beneath, closing_fd
from ...shared.patch_format import PatchPart, parse_patch
from ..sandbox.environment import MOUNT
from ..workspace.file_entries import read_all
from ..workspace.tree_changes import remove
from .grounds.ground import write
from .reports.states import Report
from .sources.broken_functions import FunctionBreaker, Shape
from .sources.broken_scripts import SUFFIXES, broken_script, reversed_script

MAX_BROKEN = 20
"""Tests that are broken: each costs the time of a failure."""
_MAX_BYTES = 2 << 20
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GO_TEST = re.compile(r"^(func Test\w*\((\w+) \*testing\.T\) \{)", re.MULTILINE)
_RUST_TEST = re.compile(
    r"(#\[(?:\w+::)?test\](?:\s*+#\[[^\]]{0,200}+\]){0,20}+\s*+(?:pub )?(?:async )?fn \w+\(\)[^{;]{0,200}\{)"
)
"""With bounds: each of many attributes would be looked at from each one before it."""
_RUST_GUARD = (
    'struct %(name)s; impl Drop for %(name)s { fn drop(&mut self) { %(fails)s { panic!("%(word)s") } } } '
    "let _%(name)s = %(name)s;"
)
_SKIPPED = {"node_modules", "target", ".venv", "venv", "vendor"}


@dataclass(frozen=True, slots=True)
class Broken:
    """What was broken: whether anything was, and the ids of the tests that cannot pass, where they are known."""

    anything: bool = False
    tests: frozenset[str] = field(default_factory=frozenset[str])
    sources: tuple[str, ...] = ()
    """The changed files that were broken, where no test was (``broken_sources.py``)."""


@dataclass(frozen=True, slots=True)
class Rewriter:
    """How tests that passed are rewritten in the grounds of one check: in the same shape with and without a fault.

    ``files`` has functions with the ids of their tests, by path. ``proving``: the tests that did not pass before. What
    they expect is broken, so that assertions are tried, too.
    """

    files: Mapping[str, Mapping[str, set[str]]]
    proving: Collection[str] = ()

    @classmethod
    def of(cls, report: Report, roots: Sequence[str], proving: Collection[str] = ()) -> Self:
        """Chooses tests of the candidate's report. ``roots``: the paths of the ground in the sandbox."""
        return cls(_sampled(report, roots, proving), proving)

    def carry_out(self, ground: Path, *, breaks: bool = True) -> Broken:
        """Rewrites the tests of a ground; returns what is broken, if they are to be. Blocks."""
        with closing_fd(os.open(ground, _FOLDER)) as root:
            if not self.files:
                return Broken(anything=_rewrite_all(ground, root, Shape(breaks)))
            found, tests = False, set[str]()
            for path, names in self.files.items():
                shape = Shape(breaks)
                if path.endswith(".py"):
                    ids = _rewrite_python(root, path, names, self.proving, shape)
                else:
                    ids = _rewrite_other(root, path, names, shape)
                found = found or ids is not None
                tests |= ids or set()
            return Broken(found, frozenset(tests))


def reverse_scripts(ground: Path, report: Report, roots: Sequence[str], proving: Collection[str]) -> None:
    """Puts tests into reverse in files that prove something and whose runner has no option for that. Blocks."""
    with closing_fd(os.open(ground, _FOLDER)) as root:
        for path in sorted(reversed_paths(report, roots, proving)):
            if text := _read(root, path):
                write(root, path, reversed_script(text).encode("utf-8", "surrogateescape"))


def reversed_paths(report: Report, roots: Sequence[str], proving: Collection[str]) -> set[str]:
    """Returns the files that ``reverse_scripts`` rewrites."""
    paths = {inside(report.places[id].file, roots) for id in proving if id in report.places}
    return {path for path in paths if path and path.endswith(SUFFIXES)}


def _sampled(report: Report, roots: Sequence[str], proving: Collection[str]) -> dict[str, dict[str, set[str]]]:
    """Returns functions with the ids of their tests, by file: ``MAX_BROKEN`` of those that pass, of each file
    as many. They are chosen at random, so that no code can know them in advance.
    """
    found: dict[bool, dict[str, dict[str, set[str]]]] = {True: {}, False: {}}
    for id in report.of("passed") & report.places.keys():
        place = report.places[id]
        if (path := inside(place.file, roots)) is not None:
            of_file = found[id in proving].setdefault(path, {})
            of_file.setdefault(place.name, set()).add(id)
    turns = chain.from_iterable(_in_turn(found[is_proving]) for is_proving in (True, False))
    files: dict[str, dict[str, set[str]]] = {}
    for path, name in islice(dict.fromkeys(turns), MAX_BROKEN):
        files.setdefault(path, {})[name] = {id for each in found.values() for id in each.get(path, {}).get(name, ())}
    return files


def _in_turn(files: Mapping[str, Collection[str]]) -> list[tuple[str, str]]:
    """Returns functions of files, each with its file: one of each file, then another one of each."""
    random = SystemRandom()
    mixed = [[(path, name) for name in random.sample([*names], len(names))] for path, names in files.items()]
    random.shuffle(mixed)
    return [each for turn in zip_longest(*mixed) for each in turn if each]


def break_by_patch(ground: Path, patch: str) -> Broken:
    """Applies the caller's own canary; nothing is broken where it does not fit. Blocks."""
    with closing_fd(os.open(ground, _FOLDER)) as root:
        parts = [(part, _new_content(root, part)) for part in parse_patch(patch)]
        if any(new is None for _, new in parts):
            return Broken()
        for part, new in parts:
            if part.old_path is not None:
                remove(root, part.old_path)
            if part.new_path is not None:
                write(root, part.new_path, new or b"")
    return Broken(anything=True)


def _new_content(root: int, part: PatchPart) -> bytes | None:
    """Returns what a part of a patch makes of the ground's file; b"" for a deleted one, None where it does not fit."""
    old = b"" if part.old_path is None else _read_bytes(root, part.old_path)
    if old is None or part.new_path is None:
        return old and b""
    new = part.result(old)
    return part.merged_by_context(old) if new is None else new


def inside(file: str, roots: Sequence[str]) -> str | None:
    """Returns a path of the sandbox as one of the ground; None for what is elsewhere. ``roots``: of the ground."""
    for root in (*roots, MOUNT):
        if file.startswith(f"{root}/"):
            return os.path.normpath(file.removeprefix(f"{root}/"))
    return None


def _rewrite_python(
    root: int, path: str, names: Mapping[str, set[str]], proving: Collection[str], shape: Shape
) -> set[str] | None:
    """Rewrites the functions of a file; returns the ids of those among ``names``, None where there are none."""
    if (text := _read(root, path)) is None:
        return None
    breaker = FunctionBreaker(set(names), {name for name, ids in names.items() if ids <= {*proving}}, shape)
    try:
        changed = ast.unparse(ast.fix_missing_locations(breaker.visit(syntax_tree.parse(text))))
    except syntax_tree.PARSE_ERRORS:
        return None
    if not breaker.broken:
        return None
    write(root, path, changed.encode("utf-8", "surrogateescape"))
    return {id for name in breaker.broken for id in names[name]}


def _rewrite_all(ground: Path, root: int, shape: Shape) -> bool:
    """Rewrites every test of the languages whose runners do not report files. Returns whether there was any."""
    found = False
    for folder, folders, names in os.walk(ground):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        for name in names:
            if name.endswith(("_test.go", ".rs")):
                path = str(Path(folder, name).relative_to(ground))
                found = _rewrite_other(root, path, {}, shape) is not None or found
    return found


def _rewrite_other(root: int, path: str, names: Mapping[str, set[str]], shape: Shape) -> set[str] | None:
    """Rewrites all tests of a file that is not in Python. Returns the ids that are known, None where it has none."""
    if (text := _read(root, path)) is None:
        return None
    known = set[str]()
    fails = f"if {shape.number()} % {shape.divisor} == {shape.rest}"
    if path.endswith("_test.go"):
        new = _GO_TEST.sub(rf'\1 defer func() {{ {fails} {{ \2.Error("{token_hex(8)}") }} }}();', text)
    elif path.endswith(".rs"):
        guard = _RUST_GUARD % {"name": f"T{token_hex(6)}", "fails": fails.replace(" %", "_u64 %"), "word": token_hex(8)}
        new = guarded_rust(text, guard)
    elif path.endswith(SUFFIXES):
        script = broken_script(text, shape, is_typed=path.endswith(("ts", "tsx")))
        new = script.text if script else text
        known = {id for title in script.titles for id in names.get(title, ())} if script else known
    else:
        return None
    if new == text:
        return None
    write(root, path, new.encode("utf-8", "surrogateescape"))
    return known


def guarded_rust(text: str, guard: str) -> str:
    """Returns a file of Rust with these statements at the start of each test."""
    return _RUST_TEST.sub(lambda found: f"{found[1]} {guard}", text)


def _read(root: int, path: str) -> str | None:
    data = _read_bytes(root, path)
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _read_bytes(root: int, path: str) -> bytes | None:
    try:
        with closing_fd(beneath(root, path, _FILE, links=False)) as fd:
            data = read_all(fd, _MAX_BYTES)
    except OSError:
        return None
    return data if len(data) <= _MAX_BYTES else None
