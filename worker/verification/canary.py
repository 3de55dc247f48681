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
from secrets import SystemRandom

from ...shared.libc import beneath, closing_fd
from ...shared.patch_format import PatchPart, parse_patch
from ..sandbox.environment import MOUNT
from ..workspace.file_entries import read_all
from ..workspace.tree_changes import remove
from .broken_functions import WORDS, FunctionBreaker
from .ground import write
from .reports import Report

MAX_BROKEN = 20
"""Tests that are broken: each costs the time of a failure."""
_MAX_BYTES = 2 << 20
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GO_TEST = re.compile(r"^(func Test\w*\((\w+) \*testing\.T\) \{)", re.MULTILINE)
_RUST_TEST = re.compile(r"(#\[(?:\w+::)?test\](?:\s*#\[[^\]]*\])*\s*(?:pub )?(?:async )?fn \w+\(\)[^{;]*\{)")
_RUST_GUARD = (
    f'struct Broken; impl Drop for Broken {{ fn drop(&mut self) {{ panic!("{WORDS}") }} }} let _broken = Broken;'
)
_NODE_TEST = re.compile(
    r"""(\b(?:test|it)\(\s*(?:"[^"\n]*"|'[^'\n]*'|`[^`]*`)\s*,\s*(?:async\s*)?(?:\([^()]*\)\s*=>|function\s*\w*\([^()]*\))\s*\{)"""
)
_NODE_FILES = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx")
_SKIPPED = {"node_modules", "target", ".venv", "venv", "vendor"}


@dataclass(frozen=True, slots=True)
class Broken:
    """What was broken: whether anything was, and the ids of the tests that cannot pass, where they are known."""

    anything: bool = False
    tests: frozenset[str] = field(default_factory=frozenset[str])
    sources: tuple[str, ...] = ()
    """The changed files that were broken, where no test was (``broken_sources.py``)."""


def break_tests(ground: Path, report: Report, roots: Sequence[str], proving: Collection[str] = ()) -> Broken:
    """Breaks the tests of a ground that passed. Blocks.

    Args:
        ground: Where the check is to be run.
        report: The tests of the candidate.
        roots: The paths of the ground in the sandbox.
        proving: Those that did not pass before. What they expect is broken, so that assertions are tried, too.
    """
    files = _sampled(report, roots, proving)
    with closing_fd(os.open(ground, _FOLDER)) as root:
        if not files:
            return Broken(anything=_break_all(ground, root))
        tests = {id for path, names in files.items() for id in _break_file(root, path, names, proving)}
        others = sum(_replace(root, path) for path in files)
        return Broken(bool(tests or others), frozenset(tests))


def _sampled(report: Report, roots: Sequence[str], proving: Collection[str]) -> dict[str, dict[str, set[str]]]:
    """Returns functions with the ids of their tests, by file: ``MAX_BROKEN`` of those that pass, of each file
    as many. They are chosen at random, so that no code can know them in advance.
    """
    found: dict[bool, dict[str, dict[str, set[str]]]] = {True: {}, False: {}}
    for id in report.of("passed") & report.places.keys():
        place = report.places[id]
        if (path := _inside(place.file, roots)) is not None:
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


def _inside(file: str, roots: Sequence[str]) -> str | None:
    for root in (*roots, MOUNT):
        if file.startswith(f"{root}/"):
            return os.path.normpath(file.removeprefix(f"{root}/"))
    return None


def _break_file(root: int, path: str, names: Mapping[str, set[str]], proving: Collection[str]) -> set[str]:
    """Breaks the functions of a Python file; returns the ids of those among ``names``."""
    if not path.endswith(".py") or (text := _read(root, path)) is None:
        return set()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return set()
    breaker = FunctionBreaker(set(names), {name for name, ids in names.items() if ids <= {*proving}})
    changed = ast.fix_missing_locations(breaker.visit(tree))
    if not breaker.broken:
        return set()
    write(root, path, ast.unparse(changed).encode("utf-8", "surrogateescape"))
    return {id for name in breaker.broken for id in names[name]}


def _break_all(ground: Path, root: int) -> bool:
    """Breaks every test of the languages whose runners do not report files. Returns whether there was any."""
    found = False
    for folder, folders, names in os.walk(ground):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        for name in names:
            if name.endswith(("_test.go", ".rs")):
                found = _replace(root, str(Path(folder, name).relative_to(ground))) or found
    return found


def _replace(root: int, path: str) -> bool:
    """Breaks the tests of a file that is not in Python. Returns whether it has any."""
    if (text := _read(root, path)) is None:
        return False
    if path.endswith("_test.go"):
        new = _GO_TEST.sub(rf'\1 defer \2.Error("{WORDS}");', text)
    elif path.endswith(".rs"):
        new = _RUST_TEST.sub(lambda found: f"{found[1]} {_RUST_GUARD}", text)
    elif path.endswith(_NODE_FILES):
        new = _NODE_TEST.sub(rf'\1 throw new Error("{WORDS}");', text)
    else:
        return False
    if new != text:
        write(root, path, new.encode("utf-8", "surrogateescape"))
    return new != text


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
