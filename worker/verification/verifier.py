"""The verification of one run: every check on its grounds, the events about it, and the verdict."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Self, TypeVar

from ...shared.events import CheckCompleted
from ...shared.facts import Check, CommandCheck, Ground, GroundState, Strength, Verification, VerifyItem
from ...shared.metrics import SANDBOX_FAILURES
from ...shared.request import GitWorkspace
from ...shared.text import clip, count
from ..run_context import RunContext
from ..sandbox.project_tools import NO_TOOLS, ProjectTools
from ..threads import run_in_thread
from ..toolkit.offer import RunOffer
from ..workspace.source import open_folder
from ..workspace.workspace import Workspace
from .broken_sources import break_sources, only_reads, unnoticed
from .canary import Broken, break_by_patch, break_tests
from .commands import CommandRunner, Observed
from .files import checked_files
from .ground import Candidate, GroundError, Grounds, fingerprint, protection_of, reader_of, remove_grounds, write
from .protected import Protection
from .runners import Instrumented, unreported
from .startable import REMEDY, why_newly_red, why_not_started, why_still_red
from .suspicions import suspicions_of
from .verdict import Judgement, Observations, demoted, of_canary, verdict_of

TAIL_CHARS = 2000
EARLY_SECONDS = 3.0
"""For how long a run waits before its first turn, to know whether its checks can start."""
_GOOD = ("evidence", "no_regression")
T = TypeVar("T")


async def beside(*work: Coroutine[Any, Any, T]) -> list[T]:
    """Does these at the same time and returns what each returns. When it ends, none of them goes on."""
    doing = [asyncio.create_task(each) for each in work]
    try:
        return await asyncio.gather(*doing)
    finally:
        for each in doing:
            each.cancel()
        await asyncio.wait(doing)


@dataclass(frozen=True, slots=True)
class OnBase:
    """What a command did on the base; once more where it was not green, which may have been by chance."""

    how: Instrumented
    first: Observed
    again: Observed | None = None
    seconds: float = 0.0
    """Of all executions."""


@dataclass(slots=True)
class Verifier:
    """Checks the result of one run, as often as it is asked, while it is open.

    Once ``begin`` was called, commands run on the base, one after the other, beside the agent. What they did there
    holds for all rounds.
    """

    run: RunContext
    offer: RunOffer
    workspace: Workspace
    project: ProjectTools = NO_TOOLS
    _bases: dict[int, asyncio.Task[OnBase]] = field(default_factory=dict[int, asyncio.Task[OnBase]])
    _firsts: dict[int, asyncio.Future[Observed]] = field(default_factory=dict[int, asyncio.Future[Observed]])
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one check that runs on the base: all of them at once would slow the agent down."""
    _checked: str = ""
    """The fingerprint of the changes that were checked last."""

    async def __aenter__(self) -> Self:
        await run_in_thread(remove_grounds, self.offer.settings.workspaces, self.run.claim.id)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._bases.values():
            task.cancel()
        await asyncio.gather(*self._bases.values(), return_exceptions=True)
        await run_in_thread(remove_grounds, self.offer.settings.workspaces, self.run.claim.id)

    def begin(self) -> None:
        """Lets the commands run on the base from now on."""
        for number, item in enumerate(self.run.claim.request.verify):
            if isinstance(item, CommandCheck) and number not in self._bases:
                first = self._firsts[number] = asyncio.get_running_loop().create_future()
                running = self._run_on_base(item, first)
                self._bases[number] = asyncio.create_task(running, name=f"base of check {number}")

    async def on_base(self, number: int) -> OnBase:
        self.begin()
        return await asyncio.shield(self._bases[number])

    async def tests_on_base(self) -> list[set[str]]:
        """Returns the ids of the tests that each check reports on the base."""
        items = enumerate(self.run.claim.request.verify)
        bases = [await self.on_base(at) if isinstance(item, CommandCheck) else None for at, item in items]
        return [{*each.first.report.tests} if each and each.first.report else set[str]() for each in bases]

    async def cannot_start(self) -> str:
        """Returns why a command cannot start on the base at all, and what to do; "" where all can, or nothing is known.

        Waits for the base no longer than ``EARLY_SECONDS``. What takes longer has started.
        """
        if not (self.run.claim.is_first and self.run.claim.request.verify_early) or self.offer.sandbox_problem:
            return ""
        if self._firsts:
            await asyncio.wait(self._firsts.values(), timeout=EARLY_SECONDS)
        for number, first in self._firsts.items():
            if first.done() and not first.cancelled():
                item = self.run.claim.request.verify[number]
                if why := await run_in_thread(why_not_started, first.result(), self.workspace.base):
                    shown = f"check {number + 1} ({clip(item.run, 80)})" if isinstance(item, CommandCheck) else ""
                    return f"{shown} cannot start: {why}. {REMEDY}"
        return ""

    async def _run_on_base(self, item: CommandCheck, early: asyncio.Future[Observed]) -> OnBase:
        """Runs the command on the base; where the instrumentation itself is in its way, without it.

        ``early`` has the result of the first execution as soon as there is one.
        """
        async with self._one:
            grounds = await run_in_thread(Grounds, self.offer.settings.workspaces, self.run.claim.id)
            try:
                runner = await self.runner(grounds)

                async def run(how: Instrumented) -> Observed:
                    with open_folder(self.workspace.base) as base:
                        ground = await run_in_thread(grounds.make, "base", base, None, item.files, Event())
                    return await runner.run(ground, item, how)

                how = Instrumented(item.run, read=self._read_base, named=item.report)
                first = await run(how)
                if first.state != "green" and first.report is None and how.name in first.output:
                    how.plain = True
                    first = await run(how)
                early.set_result(first)
                again = None if first.state in ("green", "unknown") else await _again(first, how, run)
                return OnBase(how, first, again, sum(runner.spent))
            finally:
                early.cancel()
                await run_in_thread(grounds.close)

    def _read_base(self, path: str) -> bytes | None:
        with open_folder(self.workspace.base) as base:
            return reader_of(base)(path)

    async def runner(self, grounds: Grounds) -> CommandRunner:
        """Returns what runs commands over these grounds, with the tools that the base has."""
        asked, self.project = self.run.claim.request, await self.offer.tools_of_base(self.workspace)
        origin = self.workspace.origin
        is_git = isinstance(asked.workspace, GitWorkspace) or bool(
            origin and await run_in_thread((origin / ".git").exists)
        )
        count_failure = partial(self.run.emit.count, {SANDBOX_FAILURES.field(): 1})
        return CommandRunner(
            self.offer, self.project, grounds.folder, count_failure, asked.verify_timeout_seconds, is_git
        )

    async def verify(self) -> Verification:
        """Runs all checks on the files as they are now."""
        claim = self.run.claim
        grounds = await run_in_thread(Grounds, self.offer.settings.workspaces, claim.id)
        try:
            changed = await run_in_thread(self.workspace.changed)
            protection = await run_in_thread(protection_of, claim.request, changed.base)
            candidate = await run_in_thread(Candidate, changed, protection)
            self._checked = fingerprint(changed)
            runner = await self.runner(grounds)
            checks = [
                await _Checking(self, grounds, candidate, runner, number, item).check()
                for number, item in enumerate(claim.request.verify)
            ]
            suspicions = await run_in_thread(suspicions_of, candidate, claim.request)
        except (GroundError, OSError) as error:
            return Verification(verdict="inconclusive", why=f"the files cannot be laid out for the checks: {error}")
        finally:
            await run_in_thread(grounds.close)
        verdict, why = demoted(*verdict_of(checks), suspicions, claim.request.accept)
        return Verification(
            verdict=verdict,
            checks=checks,
            restored=sorted(set(candidate.restored)),
            tampered=any(check.outcome == "tampered" for check in checks),
            why=self.run.emit.mask.text(why),
            suspicions=suspicions,
        )

    async def is_current(self) -> bool:
        """Whether the files are still those that were checked last."""
        return fingerprint(await run_in_thread(self.workspace.changed)) == self._checked


@dataclass(slots=True)
class _Checking:
    """One check of one verification."""

    of: Verifier
    grounds: Grounds
    candidate: Candidate
    runner: CommandRunner
    number: int
    item: VerifyItem
    seen: dict[Ground, Observed] = field(default_factory=dict["Ground", Observed])
    left: Observed | None = None
    """On everything as the run left it."""

    async def check(self) -> Check:
        began, before = time.monotonic(), sum(self.runner.spent)
        if isinstance(self.item, CommandCheck):
            judgement = await self._command(self.item)
        else:
            before, now = await run_in_thread(checked_files, self.candidate.changed, self.item)
            self._report("base", before)
            self._report("candidate", now)
            judgement = Observations(before, now).judge()
            if now.state == "red":
                judgement = Judgement("refuted", now.output)
            return self._made(judgement, time.monotonic() - began)
        seconds = sum(self.runner.spent) - before + (await self.of.on_base(self.number)).seconds
        return self._made(judgement, seconds)

    async def _command(self, item: CommandCheck) -> Judgement:
        on_base = await self.of.on_base(self.number)
        how, base = on_base.how, on_base.first
        self._report("base", base)
        now, left = await beside(self._now(item, how, base), self._left(item, how))
        assert now is not None
        self._report("candidate", now)
        self.left = left
        observed = Observations(
            base,
            now,
            base_again=on_base.again,
            own_files=[*item.files],
            changed=await run_in_thread(self.candidate.with_tests),
            rewrites_tests=await run_in_thread(self.candidate.rewrites_tests),
            is_unreadable=how.plain,
        )
        judgement = observed.judge()
        if judgement.outcome == "refuted" and on_base.again is None:  # it must not follow from what differs by chance
            observed = replace(observed, base_again=await self._on("base", item, how))
            judgement = observed.judge()
        if judgement.outcome == "refuted":
            observed = replace(observed, candidate_again=await self._on("candidate", item, how))
            judgement = observed.judge()
        await run_in_thread(self._explain, judgement, base, now)
        judgement = with_as_left(judgement, now, left)
        if judgement.outcome in (*_GOOD, "improved") or (judgement.outcome == "preexisting" and now.report):
            judgement = await self._confirmed(judgement, item, how, observed)
        return judgement

    def _explain(self, judgement: Judgement, base: Observed, now: Observed) -> None:
        """Adds why the command fails, if its surroundings are the reason; then it decides nothing. Blocks."""
        files = self.of.workspace
        why, is_in_vain = "", False
        if judgement.outcome == "preexisting":
            why, is_in_vain = why_still_red(base, now, files.base)
        elif judgement.outcome == "refuted":
            why = why_newly_red(now, files.path)
            is_in_vain = bool(why)
        judgement.why += f": {why}" if why else ""
        judgement.outcome = "inconclusive" if is_in_vain else judgement.outcome

    async def _now(self, item: CommandCheck, how: Instrumented, base: Observed) -> Observed | None:
        return await self._on("candidate", item, how) if self.candidate.seen else base

    async def _left(self, item: CommandCheck, how: Instrumented) -> Observed | None:
        """Runs the command on everything as the run left it, where the candidate has less."""
        if not self.candidate.restored:
            return None
        whole = await run_in_thread(Candidate, self.candidate.changed, Protection([]))
        if len(whole.seen) == len(self.candidate.seen):
            return None
        return await self._on("candidate", item, how, whole)

    async def _confirmed(
        self, judgement: Judgement, item: CommandCheck, how: Instrumented, observed: Observations
    ) -> Judgement:
        """Runs the command on the candidate again, and on the canary meanwhile."""
        ground, broken = await self._canary(item, observed)
        quiet = how.quiet()
        runs = [self._on("candidate", item, quiet)] if self.candidate.seen else []
        if broken.anything:
            runs.append(self.runner.run(ground, item, quiet))
        seen = await beside(*runs) if runs else []
        if self.candidate.seen:
            observed = replace(observed, candidate_again=seen[0])
            judgement = observed.judge()
        if not broken.anything:
            judgement.why += "; it ran without a canary" + ", as its own does not fit the files" * bool(item.canary)
            if judgement.outcome == "evidence":
                judgement.outcome = "no_regression"
            return judgement
        self._report("canary", seen[-1])
        if broken.sources:
            return _by_sources(judgement, item, broken.sources, seen[-1], observed.candidate.output)
        why = of_canary(broken.tests, seen[-1])
        return Judgement("tampered", why, judgement.tests) if why else judgement

    async def _canary(self, item: CommandCheck, observed: Observations) -> tuple[Path, Broken]:
        """Returns a ground with something broken, and what is."""
        base, stop = self.candidate.changed.base, Event()
        ground = await run_in_thread(self.grounds.make, "canary", base, self.candidate, item.files, stop)
        if item.canary:
            return ground, await run_in_thread(break_by_patch, ground, item.canary)
        if report := observed.placed:
            roots = [self.of.project.alias] if self.of.project.alias else []
            broken = await run_in_thread(break_tests, ground, report, roots, observed.new_passes)
            if broken.anything:
                return ground, broken
        return ground, await run_in_thread(self._break_sources, ground, item)

    def _break_sources(self, ground: Path, item: CommandCheck) -> Broken:
        with open_folder(ground) as root:
            changes = [each for each in self.candidate.sources() if each[0] not in item.files]
            paths = break_sources(changes, partial(write, root), statically=only_reads(item.run))
        return Broken(bool(paths), sources=tuple(paths))

    async def _on(
        self, name: Ground, item: CommandCheck, how: Instrumented, candidate: Candidate | None = None
    ) -> Observed:
        candidate = None if name == "base" else candidate or self.candidate
        base, stop = self.candidate.changed.base, Event()
        ground = await run_in_thread(self.grounds.make, name, base, candidate, item.files, stop)
        return await self.runner.run(ground, item, how)

    def _report(self, on: Ground, seen: Observed) -> None:
        self.seen[on] = seen
        tail = self._tail(seen)
        event = CheckCompleted(check=self.number, on=on, ok=seen.ok, exit_code=seen.exit_code, output_tail=tail)
        self.of.run.emit.emit(event)

    def _tail(self, seen: Observed) -> str:
        """Returns the end of what was printed; masked before it is cut, as a part of a secret would not be known."""
        return self.of.run.emit.mask.text(seen.output or seen.why)[-TAIL_CHARS:].strip()

    def _made(self, judgement: Judgement, seconds: float) -> Check:
        shown = self.seen.get("candidate")
        return Check(
            item=shown_item(self.item),
            outcome=judgement.outcome,
            why=self.of.run.emit.mask.text(judgement.why),
            strength=self._strength(),
            base=self._state("base"),
            candidate=self._state("candidate"),
            canary=self._state("canary"),
            as_left=self.left.state if self.left else None,
            exit_code=shown.exit_code if shown else None,
            output_tail=self._tail(shown) if shown else "",
            duration_ms=round(seconds * 1000),
            tests=judgement.listed,
        )

    def _strength(self) -> Strength | None:
        if not isinstance(self.item, CommandCheck):
            return None
        seen = self.seen.get("candidate")
        return "tests" if seen and seen.report and seen.report.tests else "exitCode"

    def _state(self, on: Ground) -> GroundState | None:
        return self.seen[on].state if on in self.seen else None


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
    return replace(judgement, outcome=outcome, why=f"{judgement.why}; {why}")


async def _again(first: Observed, how: Instrumented, run: Callable[[Instrumented], Awaitable[Observed]]) -> Observed:
    """Runs the command once more, of known tests those that failed, if alone they do the same as among the others."""
    failed = first.report.of("failed") if first.report else ()
    again = _with_others(first, await run(replace(how.quiet(), only=frozenset(failed))))
    is_same = not (first.report and again.report) or first.report.tests == again.report.tests
    return again if is_same else await run(how.quiet())


def _with_others(first: Observed, again: Observed) -> Observed:
    """Returns what was executed again, with the tests of the first time that were left out: those that passed."""
    if not (first.report and again.report):
        return again
    kept = {id: state for id, state in first.report.tests.items() if state != "failed"}
    return replace(again, report=replace(again.report, tests=kept | again.report.tests))


def with_as_left(judgement: Judgement, now: Observed, left: Observed | None) -> Judgement:
    """Returns the judgement, inconclusive where the check does better, or worse, on everything as it was left."""
    if left is None:
        return judgement
    if (
        judgement.outcome in ("refuted", "preexisting", "improved") and left.ok
    ):  # the task may have been to change what is protected
        why = f"{judgement.why}; with the run's own changes at protected paths it succeeds"
        return replace(judgement, outcome="inconclusive", why=why)
    if judgement.outcome in _GOOD and (worse := _worse(now, left)):
        why = f"{judgement.why}, but with the run's own changes at protected paths {worse}"
        return replace(judgement, outcome="inconclusive", why=why)
    return judgement


def _worse(now: Observed, left: Observed) -> str:
    if now.ok and not left.ok:
        return "it does not succeed"
    passed, as_left = (each.report.of("passed") if each.report else set[str]() for each in (now, left))
    kept = {_name(id) for id in as_left}
    gone = sorted(id for id in passed - as_left if _name(id) not in kept)
    return f"{count(len(gone), 'test')} less {'passes' if len(gone) == 1 else 'pass'}: {gone[0]}" if gone else ""


def _name(id: str) -> str:
    """Returns a test's name without its file, which may have been moved, and without parameters."""
    in_file = id.partition("[")[0].partition("::")[2]
    return in_file or ".".join(id.split(".")[-2:])


def shown_item(item: VerifyItem) -> dict[str, Any]:
    """Returns a check as requested, with digests in the place of contents."""
    shown = item.to_dict()
    if isinstance(item, CommandCheck):
        shown["files"] = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in item.files.items()}
        shown["canary"] = item.canary and hashlib.sha256(item.canary.encode()).hexdigest()
    return shown
