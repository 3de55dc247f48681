"""The confirmation of a good judgement: a control and a canary, which code under test must not distinguish."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

from ...shared.checks import CommandCheck
from ...shared.facts import Ground
from ..threads import run_in_thread
from ..workspace.manifest import scan
from ..workspace.source import open_folder
from .canary import Broken, Rewriter, break_by_patch
from .executions import OneCheck, beside, has_time
from .expected_files import ExpectedFiles
from .grounds.ground import reader_of, write
from .protected.named_files import with_targets
from .runners.execution import Observed
from .runners.known import Instrumented, unreported
from .second_execution import Repetition
from .sources.broken_sources import break_sources, only_executes_python, only_reads, unnoticed
from .sources.failing_scripts import make_fail
from .variation import Variation
from .verdict import Judgement, Observations, of_canary


class _Pair(NamedTuple):
    """``is_rewritten``: whether the control's tests are in the shape of the canary's."""

    control: Path
    canary: Path
    broken: Broken
    is_rewritten: bool

    @property
    def only(self) -> frozenset[str]:
        """The tests that are executed alone on both, so that neither can be recognized by the number of tests."""
        return self.broken.tests if self.is_rewritten else frozenset()


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The executions that confirm one check. ``how`` prints no tracebacks, which cost more than the tests."""

    check: OneCheck
    item: CommandCheck
    how: Instrumented
    observed: Observations
    words: dict[str, str] = field(default_factory=dict[str, str])
    """What programs print that are made to fail, by their paths."""

    async def of(self, judgement: Judgement) -> Judgement:
        """Returns the judgement after the command ran on the control and on the canary."""
        pair = await self._pair()
        only, runs = pair.only, self._executions(pair, pair.only)
        repetition = self._repetition(judgement)
        runs += [repetition.run()] if repetition else []
        forgiving = judgement.outcome == "evidence" and bool(pair.broken.sources)
        runs += [self._failing()] if forgiving else []
        seen = await beside(*runs) if runs else []
        forgiven = self._forgiven(seen.pop()) if forgiving else ""
        again = seen.pop() if repetition else None
        if self.check.candidate.seen:
            control = seen[0].completed(self.observed.candidate, only) if only else seen[0]
            if only and not _passes(control, self.observed.candidate):  # some may need others before them
                pair = await self._pair()
                control, *seen = await beside(*self._executions(pair))
            judgement = await self._again(judgement, control, pair.is_rewritten)
        if repetition and again:
            judgement = await repetition.judged(judgement, again)
        judgement = await self._by_inputs(judgement, repetition.proving if repetition else frozenset())
        broken = pair.broken
        if not broken.anything:
            judgement.why += "; it ran without a canary" + ", as its own does not fit the files" * bool(
                self.item.canary
            )
            if judgement.outcome == "evidence":
                judgement.outcome = "no_regression"
            return replace(judgement, is_open=False)
        self.check.report("canary", seen[-1])
        if broken.sources:
            if self.observed.base.did_not_end and seen[-1].did_not_end:  # that it does not end may be by chance
                return Judgement("inconclusive", f"it does not end with {broken.sources[0]} broken, as before the run")
            judgement = _by_sources(judgement, self.item, broken.sources, seen[-1], self.observed.candidate.output)
            return Judgement("inconclusive", f"{judgement.why}; {forgiven}") if forgiven else judgement
        why = of_canary(broken.tests, seen[-1])
        return Judgement("tampered", why, judgement.tests) if why else judgement

    async def _by_inputs(self, judgement: Judgement, proving: frozenset[str]) -> Judgement:
        """Returns the judgement by what happens with other inputs, and with other files that say what is expected.

        Both are left out where half of the time of all checks is spent: a check that does not end proves nothing.
        """
        if judgement.outcome != "evidence" or not has_time(self.check.runner.spent, self.check.runner.seconds):
            return judgement
        given = self.check, self.item, self.how, self.observed
        work = [ExpectedFiles(*given).judged(judgement)]
        work += [Variation(*given, proving).judged(judgement)] if proving else []
        found = await beside(*work)
        return next((each for each in found if each.outcome != judgement.outcome), judgement)

    async def _failing(self) -> Observed:
        """Runs the command where each program of its tests fails at its end."""
        ground = await self._ground("canary")
        self.words.update(await run_in_thread(self._make_fail, ground))
        return await self._on(ground)

    def _make_fail(self, ground: Path) -> dict[str, str]:
        candidate = self.check.candidate
        changed = {each.path for each in candidate.seen} - {*self.item.files}
        with open_folder(ground) as root:
            paths = [path for path in scan(root) if path not in changed]
            return make_fail(paths, candidate.protection.named, reader_of(root), partial(write, root))

    def _forgiven(self, seen: Observed) -> str:
        """Returns why the exit code of the command proves nothing, by what ran where its tests fail."""
        failed = [path for path, word in self.words.items() if word in seen.output]
        return f"{failed[0]} was made to fail, and the command still succeeds" if failed and seen.ok else ""

    def _repetition(self, judgement: Judgement) -> Repetition | None:
        """Returns the repetition of the tests that turned green, where they are why the judgement is good."""
        is_by_tests = judgement.outcome in ("evidence", "improved") and self.check.used
        proving = frozenset(self.observed.new_passes if is_by_tests else ())
        return Repetition(self.check, self.item, self.how, self.observed, proving) if proving else None

    async def _pair(self) -> _Pair:
        control, canary = await self._ground("candidate"), await self._ground("canary")
        return _Pair(control, canary, *await run_in_thread(self._break, control, canary))

    def _executions(self, pair: _Pair, only: frozenset[str] = frozenset()) -> list[Coroutine[Any, Any, Observed]]:
        """Returns those of control and canary: of these tests alone, or of all."""
        how, runs = replace(self.how, only=only, has_plain_asserts=bool(only)), list[Coroutine[Any, Any, Observed]]()
        if self.check.candidate.seen:
            runs.append(self._on(pair.control, how))
        if pair.broken.anything:
            runs.append(self._on(pair.canary, how))
        return runs

    async def _ground(self, name: Ground) -> Path:
        candidate = self.check.candidate
        make = partial(self.check.grounds.make, name, candidate.changed.base, candidate)
        return await run_in_thread(make, self.item.files, Event())

    async def _on(self, ground: Path, how: Instrumented | None = None) -> Observed:
        return await self.check.runner.run(ground, self.item, how or self.how)

    def _break(self, control: Path, canary: Path) -> tuple[Broken, bool]:
        """Breaks something on the canary; returns also whether the control has been rewritten in the same shape."""
        if self.item.canary:
            return break_by_patch(canary, self.item.canary), False
        if report := self.observed.placed:
            rewriting = Rewriter.of(report, self.check.roots, self.observed.new_passes)
            broken = rewriting.carry_out(canary)
            if broken.anything:
                rewriting.carry_out(control, breaks=False)
                return broken, True
        changes = [each for each in self.check.candidate.sources() if each[0] not in self.item.files]
        line = with_targets(self.item.run, self.how.read) if self.how.read else self.item.run
        with open_folder(canary) as root:
            paths = break_sources(changes, partial(write, root), statically=only_reads(line))
        rewritten = list[str]()
        if only_executes_python(line, [path for path, _ in changes]):
            with open_folder(control) as root:
                rewritten = break_sources(changes, partial(write, root), statically=False, breaks=False)
        return Broken(bool(paths), sources=tuple(paths)), bool(rewritten)

    async def _again(self, judgement: Judgement, control: Observed, is_rewritten: bool) -> Judgement:
        """Returns the judgement by the second execution on the candidate.

        A control that differs may be due to the rewriting: then the plain files decide whether the tests are steady.
        """
        if not is_rewritten or _passes(control, self.observed.candidate):
            again = replace(control, state=self.observed.candidate.state) if is_rewritten else control
            return replace(self.observed, candidate_again=again).judge()
        plain = await self._on(await self._ground("candidate"))
        judged = replace(self.observed, candidate_again=plain).judge()
        if judged.outcome != judgement.outcome:
            return judged
        why = "it ends differently where the files are rewritten without a change of their meaning"
        return replace(judged, outcome="inconclusive", why=f"{judged.why}, but {why}")


def _passes(control: Observed, candidate: Observed) -> bool:
    """Whether all tests that pass on the candidate pass on the control. Its exit code may be that of a linter.

    Where no tests are known, a report may still have what was replaced.
    """
    one, other = control.report, candidate.report
    if not (one and other and (one.tests or other.tests)):
        return control.state == candidate.state
    return one.tests == other.tests and one.finished == other.finished


def _by_sources(
    judgement: Judgement, item: CommandCheck, broken: Sequence[str], seen: Observed, output: str
) -> Judgement:
    """Returns the judgement after the changed files were broken on purpose. ``output``: that of the candidate.

    Where a runner of tests ran and did not report them, an exit code proves nothing.
    """
    runner = "" if judgement.tests else unreported(item.run, output)
    if seen.state == "green":
        outcome, why = unnoticed(judgement.outcome, item.run, broken)
    elif runner and judgement.outcome == "evidence":
        outcome, why = "no_regression", f"{runner} ran, and did not report its tests"
    else:
        return judgement
    return replace(judgement, outcome=outcome, why=f"{judgement.why}; {why}", is_open=False)
