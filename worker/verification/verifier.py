"""The verification of one run: every check on its grounds, the events about it, and the verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from secrets import token_hex
from threading import Event
from typing import Any, Self

from ...shared.checks import CommandCheck, ReviewCheck
from ...shared.events import CheckCompleted, ProgressMade
from ...shared.facts import SUFFICIENT, Check, Verdict, Verification
from ...shared.metrics import SANDBOX_FAILURES
from ...shared.request import GitWorkspace
from ...shared.text import clip
from ..core.run_context import RunContext
from ..sandbox.project_tools import NO_TOOLS, ProjectTools
from ..threads import run_in_thread
from ..toolkit.offer import RunOffer
from ..workspace.source import open_folder
from ..workspace.workspace import Changed, Workspace
from .check_execution import CheckExecution, OnBase
from .grounds.ground import Candidate, GroundError, Grounds, fingerprint, protection_of, reader_of, remove_grounds
from .known_verdicts import KnownVerdicts
from .own_checks import CheckKind, CheckKinds, why_unusable
from .review import Reviewer
from .runners.execution import CommandRunner, Observed
from .runners.known import Instrumented
from .startable import REMEDY, why_not_started
from .suspicions.scan import suspicions_of
from .verdict import Judgement, demoted, verdict_of

EARLY_SECONDS = 3.0
"""For how long a run waits before its first turn, to know whether its checks can start."""


@dataclass(slots=True)
class Verifier:
    """Checks the result of one run, as often as it is asked, while it is open.

    Once ``begin`` was called, commands run on the base, one after the other, beside the agent. What they did there
    holds for all rounds.
    """

    run: RunContext
    offer: RunOffer
    workspace: Workspace
    reviewer: Reviewer | None = None
    project: ProjectTools = NO_TOOLS
    kinds: CheckKinds = field(default_factory=dict[str, "CheckKind[Any]"])
    """Those that the worker was started with."""
    known: KnownVerdicts | None = None
    """Of an attempt at a task that others attempt, too."""
    _bases: dict[int, asyncio.Task[OnBase]] = field(default_factory=dict[int, asyncio.Task[OnBase]])
    _firsts: dict[int, asyncio.Future[Observed]] = field(default_factory=dict[int, asyncio.Future[Observed]])
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one check that runs on the base: all of them at once would slow the agent down."""
    _own: str = field(default_factory=lambda: f"{token_hex(4)}-")
    """By which this attempt knows its grounds: another one of the same run may be there for a moment."""
    _checked: str = ""
    """The fingerprint of the changes that were checked last."""

    async def __aenter__(self) -> Self:
        await run_in_thread(remove_grounds, self.offer.settings.workspaces, self.run.claim.id)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._bases.values():
            task.cancel()
        await asyncio.gather(*self._bases.values(), return_exceptions=True)
        await run_in_thread(remove_grounds, self.offer.settings.workspaces, self.run.claim.id, self._own)

    def begin(self) -> None:
        """Lets the commands run on the base from now on."""
        for number, item in enumerate(self.run.claim.request.verify):
            if isinstance(item, CommandCheck) and number not in self._bases:
                first = self._firsts[number] = asyncio.get_running_loop().create_future()
                running = self._run_on_base(item, first)
                self._bases[number] = asyncio.create_task(running, name=f"base of check {number}")

    async def on_base(self, number: int) -> OnBase:
        self.begin()
        if not self._bases[number].done():
            self.run.emit.emit(ProgressMade(message=f"check {number + 1} still runs on the files from before the run"))
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
        if why := next(filter(None, (why_unusable(self.kinds, item) for item in self.run.claim.request.verify)), ""):
            return why
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
            grounds = await run_in_thread(Grounds, self.offer.settings.workspaces, self.run.claim.id, self._own)
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
        """Runs all checks on the files as they are now, unless it is known what they come to."""
        changed = await run_in_thread(self.workspace.changed)
        self._checked = fingerprint(changed)
        if self.known and (found := await self.known.of(self._checked)):
            return found
        found = await self._made(changed)
        if self.known:
            self.known.note(self._checked, found)
        return found

    async def _made(self, changed: Changed) -> Verification:
        claim = self.run.claim
        grounds = await run_in_thread(Grounds, self.offer.settings.workspaces, claim.id, self._own)
        try:
            protection = await run_in_thread(protection_of, claim.request, changed.base)
            candidate = await run_in_thread(Candidate, changed, protection)
            runner = await self.runner(grounds)
            roots = [self.project.alias] if self.project.alias else []
            shared = (self.run, self.workspace, roots, self.on_base, grounds, candidate, runner)
            executions = [
                CheckExecution(*shared, number, item, self.kinds)
                for number, item in enumerate(claim.request.verify)
                if not isinstance(item, ReviewCheck)
            ]
            checks = {each.number: await each.check() for each in executions}
            restored = {*candidate.restored}
            checks, candidate = await _confirmed(executions, checks, candidate)
            suspicions = await run_in_thread(suspicions_of, candidate, claim.request)
        except (GroundError, OSError) as error:
            return Verification(verdict="inconclusive", why=f"the files cannot be laid out for the checks: {error}")
        finally:
            await run_in_thread(grounds.close)
        verdict, why = verdict_of([*checks.values()])
        if reviews := await self._reviews(demoted(verdict, why, suspicions, claim.request.accept)[0]):
            checks = dict(sorted({**checks, **reviews}.items()))
            verdict, why = verdict_of([*checks.values()])
        verdict, why = demoted(verdict, why, suspicions, claim.request.accept)
        return Verification(
            verdict=verdict,
            checks=[*checks.values()],
            restored=sorted({*candidate.restored}),
            released=sorted(restored - {*candidate.restored}),
            tampered=any(check.outcome == "tampered" for check in checks.values()),
            why=self.run.emit.mask.text(why),
            suspicions=suspicions,
        )

    async def _reviews(self, verdict: Verdict) -> dict[int, Check]:
        """Makes the reviews that the request has, where the verdict of all other checks is good enough to lose."""
        made = dict[int, Check]()
        for number, item in enumerate(self.run.claim.request.verify):
            if not isinstance(item, ReviewCheck):
                continue
            began = time.monotonic()
            if verdict not in SUFFICIENT["improved"]:
                judgement = Judgement("no_regression", "no review was made, as the other checks fall short")
            elif self.reviewer is None:
                judgement = Judgement("inconclusive", "only runs with a model are reviewed")
            else:
                self.run.emit.emit(ProgressMade(message=f"check {number + 1} is a review by a child delegation"))
                judgement = await self.reviewer.judge(item, number)
            why, seconds = self.run.emit.mask.text(judgement.why), time.monotonic() - began
            is_good = judgement.outcome == "no_regression"
            self.run.emit.emit(CheckCompleted(check=number, on="candidate", ok=is_good, output_tail=why))
            made[number] = Check(
                item=item.to_dict(), outcome=judgement.outcome, why=why, duration_ms=round(seconds * 1000)
            )
        return made

    async def is_current(self) -> bool:
        """Whether the files are still those that were checked last."""
        return fingerprint(await run_in_thread(self.workspace.changed)) == self._checked


async def _confirmed(
    executions: Sequence[CheckExecution], checks: Mapping[int, Check], candidate: Candidate
) -> tuple[dict[int, Check], Candidate]:
    """Returns the checks, and the changes that they all were judged on: where one needs all that was left, that."""
    needing = [each for each in executions if each.candidate is not candidate]
    if not (needing and _is_good(checks)):
        return {**checks}, candidate
    others = [each for each in executions if each not in needing]
    confirmed = {**checks} | {each.number: await each.confirm_as_left(checks[each.number]) for each in others}
    return confirmed, needing[0].candidate if _is_good(confirmed) else candidate


def _is_good(checks: Mapping[int, Check]) -> bool:
    return verdict_of([*checks.values()])[0] in SUFFICIENT["passed"]


async def _again(first: Observed, how: Instrumented, run: Callable[[Instrumented], Awaitable[Observed]]) -> Observed:
    """Runs the command once more, of known tests those that failed, if alone they do the same as among the others."""
    failed = frozenset(first.report.of("failed") if first.report else ())
    again = (await run(replace(how.quiet(), only=failed))).completed(first, failed)
    is_same = not (first.report and again.report) or first.report.tests == again.report.tests
    return again if is_same else await run(how.quiet())
