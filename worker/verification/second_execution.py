"""The repetition: tests that turned green run once more, in reverse, on the files that the first execution left.

A test that fails there may be one whose answers the run has made up: by the number of the call, or by a file that it
leaves. Or the tests themselves depend on their order, or on files that they leave. So a failure counts against the run
unless the same happens before the run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from threading import Event

from ...shared import syntax_tree
from ...shared.checks import CommandCheck
from ..threads import run_in_thread
from .canary import inside, reverse_scripts, reversed_paths
from .executions import OneCheck, beside
from .grounds.ground import Candidate
from .grounds.left_files import is_named, left, paths_of, put_back
from .reports.report_files import read_inside
from .reports.states import Report
from .runners.execution import Observed
from .runners.known import Instrumented
from .sources.broken_scripts import SUFFIXES
from .sources.functions_before import Function
from .verdict import Judgement, Observations

_SCRIPT = re.compile(
    r"^(?:\s*(?:let|var)\s+|(?:export\s+)?const\s+(?=\w+\s*=\s*(?:new\b|\[|\{|[\w.]+\()))(?P<name>\w+)",
    re.MULTILINE,
)
_PHP = re.compile(r"\bstatic\s+(?:\??\w+\s+)?\$(?P<name>\w+)")
_STATE = {
    **dict.fromkeys(SUFFIXES, _SCRIPT),
    ".php": _PHP,
}
"""What outlives a test in a file of tests."""
_CHANGING = (ast.Call, ast.List, ast.Dict, ast.Set)


@dataclass(frozen=True, slots=True)
class Repetition:
    """The repetition of one check. ``proving``: the tests that turned green."""

    check: OneCheck
    item: CommandCheck
    how: Instrumented
    observed: Observations
    proving: frozenset[str]

    async def run(self) -> Observed:
        """Runs the tests that turned green on the files as the first execution left them."""
        assert self.check.used is not None
        return await self._in_reverse(self.check.used, self.proving)

    async def judged(self, judgement: Judgement, again: Observed) -> Judgement:
        """Returns the judgement by what the repetition did."""
        failing = _failed(again, self.proving)
        if not failing or judgement.outcome not in ("evidence", "improved"):
            return judgement
        base, fresh = await self._grounds("base", None), await self._grounds("candidate", self.check.candidate)
        of_base, of_fresh = await beside(self._in_reverse(base[0], ()), self._in_reverse(fresh[0], self.proving))
        by_order = _failed(of_fresh, failing)
        by_files = failing - by_order
        if by_files and await run_in_thread(self._forget, by_files, base, fresh[1]):
            assert self.check.used is not None
            by_files = _failed(await self._in_reverse(self.check.used, self.proving), by_files)
        by_order -= self._in_files(by_order, self._depending(of_base))
        if not (by_order or by_files):
            return judgement
        if (
            not by_files
            and judgement.outcome == "evidence"
            and await run_in_thread(self._keep_state, by_order, base[1])
        ):
            why = f"{min(by_order)} fails where the tests run in reverse, and may need those before it"
            return replace(judgement, outcome="no_regression", why=f"{judgement.why}; {why}")
        first = min(by_order | by_files)
        why = f"{first} fails where the tests that turned green run again on the same files, in reverse"
        return Judgement("inconclusive", f"{judgement.why}; {why}", judgement.tests)

    async def _in_reverse(self, ground: Path, only: Collection[str]) -> Observed:
        report = self.observed.placed
        assert report is not None
        await run_in_thread(reverse_scripts, ground, report, self.check.roots, self.proving)
        how = replace(self.how, only=frozenset(only), is_reversed=True)
        return await self.check.runner.run(ground, self.item, how)

    async def _grounds(self, name: str, candidate: Candidate | None) -> tuple[Path, Path]:
        """Returns two grounds of the same files: one for an execution, and one that stays as it is."""
        base, make = self.check.candidate.changed.base, self.check.grounds.make
        first = await run_in_thread(make, name, base, candidate, self.item.files, Event())
        return first, await run_in_thread(make, name, base, candidate, self.item.files, Event())

    def _depending(self, reversed_base: Observed) -> set[str]:
        """Returns the tests that passed before the run, and fail before the run in reverse."""
        return _failed(reversed_base, (self.observed.base.report or Report()).of("passed"))

    def _in_files(self, ids: Collection[str], others: Collection[str]) -> set[str]:
        """Returns those of the tests that are in a file with one of the others."""
        places = (self.observed.placed or Report()).places
        files = {places[id].file if id in places else "" for id in others}
        return {id for id in ids if (places[id].file if id in places else "") in files}

    def _forget(self, failing: Collection[str], base: tuple[Path, Path], fresh: Path) -> bool:
        """Undoes in the used ground what tests leave by themselves: what they name, or left before the run, too.

        Returns whether there was any. Blocks.
        """
        assert self.check.used is not None
        known, texts = left(*base), [text for _, text in self._tests(failing, base[1])]
        there, changed = {*paths_of(fresh)}, left(self.check.used, fresh)
        scripts = reversed_paths(self.observed.placed or Report(), self.check.roots, self.proving)
        named = {path for path in changed if path in known or any(is_named(path, text, there) for text in texts)}
        if not named - scripts:
            return False
        put_back(named | (changed & scripts), self.check.used, fresh)
        return True

    def _keep_state(self, failing: Collection[str], base: Path) -> bool:
        """Whether each of these tests uses something that another test of its file may have changed. Blocks."""
        places = (self.observed.placed or Report()).places
        return all(
            keeps_state(path, text, places[id].name if id in places else "")
            for id in failing
            for path, text in self._tests([id], base)
        )

    def _tests(self, ids: Collection[str], base: Path) -> list[tuple[str, str]]:
        """Returns the files from before the run in which these tests are, with their texts; "" where one is unknown."""
        places = (self.observed.placed or Report()).places
        files = {places[id].file if id in places else "" for id in ids}
        paths = [inside(file, self.check.roots) or "" for file in sorted(files)]
        return [(path, self.item.files.get(path) or (read_inside(base, path) if path else "")) for path in paths]


def _failed(seen: Observed, expected: Collection[str]) -> set[str]:
    """Returns those of the tests that did not pass: what is not reported may have been kept from its report."""
    return {*expected} - (seen.report.of("passed") if seen.report else set())


def keeps_state(path: str, text: str, name: str) -> bool:
    """Whether a test of a file uses something that another one may have changed. ``name``: that of its function."""
    if not path.endswith(".py"):
        return _uses_in_text(text, name, _STATE.get(PurePosixPath(path).suffix))
    try:
        tree = syntax_tree.parse(text)
        kept = {*_kept(tree)}
    except syntax_tree.PARSE_ERRORS:
        return False
    last = name.rpartition(".")[2]
    tests = [each for each in ast.walk(tree) if isinstance(each, Function) and each.name == last]
    return any(_names(part) & kept for test in tests for part in ast.walk(test))


def _uses_in_text(text: str, title: str, state: re.Pattern[str] | None) -> bool:
    """The same of a file in another language, where a test ends before the next one."""
    title = re.escape(title.rpartition(".")[2] if state is _PHP else title)
    found = re.search(rf"['\"`]{title}['\"`]|\bfunction {title}\b", text) if title else None
    if state is None or found is None:
        return False
    test = re.split(r"\n\s*(?:test|it|(?:public )?function)\b", text[found.start() :], maxsplit=1)[0]
    names = {found["name"] for found in state.finditer(text)}
    return any(re.search(rf"\b{re.escape(name)}\b", test) for name in names if name)


def _kept(tree: ast.Module) -> Iterator[str]:
    """Yields names of a file, and of its classes, that are bound to what can change, or again while tests run."""
    for node in [*tree.body, *(part for each in tree.body if isinstance(each, ast.ClassDef) for part in each.body)]:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, _CHANGING):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (part.id for each in targets for part in ast.walk(each) if isinstance(part, ast.Name))
    for node in ast.walk(tree):
        match node:
            case ast.Global(names=names):
                yield from names
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if any("scope=" in ast.unparse(each) for each in node.decorator_list):
                    yield node.name
            case ast.Attribute(ctx=ast.Store(), value=owner):
                text = ast.unparse(owner)
                if text in ("cls", "type(self)", "self.__class__") or text[:1].isupper():
                    yield node.attr
            case _:
                pass


def _names(node: ast.AST) -> set[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return {name}
        case ast.Global(names=names):
            return {*names}
        case _:
            return set()
