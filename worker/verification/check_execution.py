"""One check of a verification: its executions on base, candidate and canary, and what follows from them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any, Literal

from ...shared.checks import ChangedCheck, CommandCheck, FileCheck, OwnCheck, UnchangedCheck
from ...shared.events import CheckCompleted, ProgressMade
from ...shared.facts import Check, Ground, GroundState, Strength
from ...shared.proof.statement import shown_item
from ...shared.request import DelegationRequest
from ..core.run_context import RunContext
from ..threads import run_in_thread
from ..workspace.workspace import Workspace
from .asked_changes import NOTHING, AskedChanges, asked_changes
from .confirmation import Confirmation
from .executions import beside
from .file_checks import checked_files
from .grounds.ground import Candidate, Grounds, protection_of
from .kept_tests import Breaking, KeptTests, break_functions, kept_tests
from .own_checks import CheckKind, CheckKinds, own_states
from .own_tests import CodeBefore, judged_by_own, lay_functions_before, own_tests, suspected
from .protected.paths import Protection
from .reports.states import Report
from .runners.execution import CommandRunner, Observed
from .runners.known import Instrumented
from .startable import why_newly_red, why_not_started, why_still_red
from .verdict import GOOD, Judgement, Observations, of_files, with_as_left

TAIL_CHARS = 2000


@dataclass(frozen=True, slots=True)
class OnBase:
    """What a command did on the base; once more where it was not green, which may have been by chance."""

    how: Instrumented
    first: Observed
    again: Observed | None = None
    seconds: float = 0.0
    """Of all executions."""


@dataclass(slots=True)
class CheckExecution:
    """One check of one verification. ``roots``: paths of the workspace in the sandbox, beside the usual one."""

    run: RunContext
    workspace: Workspace
    roots: Sequence[str]
    on_base: Callable[[int], Awaitable[OnBase]]
    grounds: Grounds
    candidate: Candidate
    runner: CommandRunner
    number: int
    item: CommandCheck | FileCheck | UnchangedCheck | ChangedCheck | OwnCheck
    kinds: CheckKinds = field(default_factory=dict[str, "CheckKind[Any]"])
    seen: dict[Ground, Observed] = field(default_factory=dict["Ground", Observed])
    left: Observed | None = None
    """On everything as the run left it."""
    used: Path | None = None
    """The ground of the first execution with the run's changes."""
    _judged: tuple[Instrumented, Observations] | None = None
    """Of a command: what its outcome follows from."""

    @property
    def _request(self) -> DelegationRequest:
        return self.run.claim.request

    @property
    def _asked(self) -> AskedChanges:
        """What the task asks to change, where the request does not state what is protected."""
        return NOTHING if self._request.protect is not None else asked_changes(self._request.task)

    async def check(self) -> Check:
        began, spent = time.monotonic(), sum(self.runner.spent)
        if isinstance(self.item, CommandCheck):
            judgement = await self._command(self.item)
        else:
            before, now = await self._of_files(self.item)
            self.report("base", before)
            self.report("candidate", now)
            judgement = Observations(before, now).judge()
            if now.state == "red":
                judgement = Judgement("refuted", now.output)
            return self._made(judgement, time.monotonic() - began)
        seconds = sum(self.runner.spent) - spent + (await self.on_base(self.number)).seconds
        return self._made(judgement, seconds)

    async def _of_files(self, item: FileCheck | UnchangedCheck | ChangedCheck | OwnCheck) -> tuple[Observed, Observed]:
        if isinstance(item, OwnCheck):
            return await own_states(self.kinds, self.candidate.changed, item)
        return await run_in_thread(checked_files, self.candidate.changed, item)

    async def _command(self, item: CommandCheck) -> Judgement:
        on_base = await self.on_base(self.number)
        self._progress("on the result")
        how, base = on_base.how, on_base.first
        self.report("base", base)
        now, self.left = await beside(self._now(item, how, base), self._left(item, how))
        assert now is not None
        self.report("candidate", now)
        observed = Observations(
            base,
            now,
            base_again=on_base.again,
            own_files=[*item.files],
            changed=await run_in_thread(self.candidate.with_tests),
            beside_code=await run_in_thread(self.candidate.tests_beside_code),
            is_unreadable=how.plain,
            accepted=self._request.accept if self._request.protect is not None else (),
        )
        if observed.judge().outcome == "refuted":
            self._progress("again, as it refutes the result")
            observed = await self._repeated(observed, item, how)
        judgement = observed.judge()
        await run_in_thread(self._explain, judgement, base, now)
        judgement = with_as_left(judgement, now, self.left)
        confirmable = (*GOOD, "improved", *(["preexisting"] if now.report else []))
        if judgement.outcome in confirmable or judgement.is_untrusted:
            self._progress("on the result again, and where something is broken that it must notice")
            judgement = await Confirmation(self, item, how.quiet(), observed).of(judgement)
        if self.left and self.left.ok and judgement.outcome not in GOOD:
            judgement = await self._with_kept_tests(judgement, item, how, observed, self.left)
        if judgement.is_open and (self.left or now).ok:
            judgement = await self._by_own_tests(judgement, item, how, observed)
        self._judged = how, observed
        return judgement

    async def _repeated(self, observed: Observations, item: CommandCheck, how: Instrumented) -> Observations:
        """Executes once more what refutes the result, twice where a test newly fails: it may differ by chance."""
        if observed.base_again is None:
            observed = replace(observed, base_again=await self._on("base", item, how))
        if observed.judge().outcome == "refuted":
            observed = replace(observed, candidate_again=await self._on("candidate", item, how))
        judgement = observed.judge()
        if judgement.outcome == "refuted" and judgement.tests.get("failed"):
            observed = observed.with_more(*await beside(self._on("base", item, how), self._on("candidate", item, how)))
        return observed

    async def confirm_as_left(self, check: Check) -> Check:
        """Returns the check of a command, judged also on all that the run left, which another check was judged on."""
        item = self.item
        if not (isinstance(item, CommandCheck) and self._judged and self.left and check.outcome in GOOD):
            return check
        how, observed = self._judged
        whole = await run_in_thread(Candidate, self.candidate.changed, Protection([]))
        kept = await run_in_thread(kept_tests, self.candidate, whole, self._asked)
        if kept is None:
            return check
        observed = await self._with_left(observed, kept, self.left)
        found = observed.judge()
        if found.outcome in GOOD:
            self._progress("on all that was left, as another check needs that")
            found = await Confirmation(self._on_whole(whole), item, how.quiet(), observed).of(found)
        if found.outcome in GOOD:
            return check
        why = f"{check.why}, but not with the run's changes of tests or settings, which another check needs"
        outcome = found.outcome if found.outcome == "tampered" else "inconclusive"
        return check.model_copy(update={"outcome": outcome, "why": self.run.emit.mask.text(f"{why}: {found.why}")})

    async def _with_kept_tests(
        self, judgement: Judgement, item: CommandCheck, how: Instrumented, observed: Observations, left: Observed
    ) -> Judgement:
        """Returns the judgement on all that the run left, where its changes of tests and settings take nothing away."""
        whole = await run_in_thread(Candidate, self.candidate.changed, Protection([]))
        kept = await run_in_thread(kept_tests, self.candidate, whole, self._asked)
        was_green = observed.base.ok
        if kept is None or (kept.adds_tests and not self._adds_only(observed, left)):
            return judgement
        proven = judgement.tests.get("fixed", set[str]())
        if kept.asked and "names" not in self._asked.kinds and observed.lost(left):
            return judgement
        observed = await self._with_left(observed, kept, left)
        found = observed.judge()
        if found.outcome not in GOOD or not (found.tests or kept.asked):
            return judgement
        self._progress("on all that was left, and where something is broken that it must notice")
        check = self._on_whole(whole)
        found = await Confirmation(check, item, how.quiet(), observed).of(found)
        if found.outcome in GOOD and await check._holds(item, how, observed, kept):
            self.candidate, self.used = whole, None
            shown = f"{', '.join(kept.paths[:3])}{' and more' * (len(kept.paths) > 3)}"
            leave = "which the task asks for" if kept.asked else "which leave the tests as they were"
            why = f"it succeeds with the run's changes of {shown}, {leave}"
            if kept.asked and proven & found.tests.get("fixed", set[str]()):
                return replace(found, why=why)  # these turned green without those changes, too
            return replace(found, outcome="no_regression", why=why, is_open=was_green and not kept.asked)
        return found if found.outcome == "tampered" else judgement

    def _on_whole(self, whole: Candidate) -> CheckExecution:
        """Returns this check of all that the run left. The files of the ground that was used are others."""
        return replace(self, candidate=whole, used=None)

    async def _holds(self, item: CommandCheck, how: Instrumented, observed: Observations, kept: KeptTests) -> bool:
        """Whether what was left is good by more than the changes that the check did not see at first."""
        if kept.asked:
            return await self._notices_as_much(item, how, observed, kept)
        return observed.base.ok or kept.are_locks or await self._depends_on_code(item, how, observed)

    async def _with_left(self, observed: Observations, kept: KeptTests, left: Observed) -> Observations:
        """Returns what to judge by, with all that the run left in the place of what the check sees at first."""
        return replace(
            observed,
            base=kept.on_base(observed.base),
            candidate=left,
            base_again=observed.base_again and kept.on_base(observed.base_again),
            candidate_again=None,
            changed={*await run_in_thread(self.candidate.with_tests), *kept.added, *kept.asked},
            accepted={*observed.accepted, *self._asked.accepted} if kept.asked else observed.accepted,
        )

    def _adds_only(self, observed: Observations, left: Observed) -> bool:
        """Whether tests that were added help no other test, nor are all that speaks for changes of the code."""
        failed = (observed.candidate.report or Report()).of("failed")
        helped = failed & (left.report or Report()).of("passed")
        return not helped and (observed.base.ok or not self.candidate.seen)

    async def _depends_on_code(self, item: CommandCheck, how: Instrumented, observed: Observations) -> bool:
        """Whether a test that passes now and did not before fails where every function of the code is broken."""
        seen = await self._on_broken(item, how, self.candidate)
        return seen is not None and bool(observed.new_passes - (seen.report or Report()).of("passed"))

    async def _notices_as_much(
        self, item: CommandCheck, how: Instrumented, observed: Observations, kept: KeptTests
    ) -> bool:
        """Whether as many tests as before fail where every function is broken, though the task let the run change them.

        Of a command that reports no tests: whether it fails there, or where no file of code can be read.
        """
        whole, passing = self.candidate, list[set[str]]()
        if not (observed.candidate.report and observed.candidate.report.tests):
            seen = [await self._on_broken(item, how, whole, by) for by in ("false", "syntax")]
            return any(each is not None and not each.ok for each in seen)
        for by in ("false", "true"):
            base, now = await beside(self._on_broken(item, how, None, by), self._on_broken(item, how, whole, by))
            if base is None or now is None:
                return False
            found = [(each.report or Report()).of("passed") for each in (kept.on_base(base), now)]
            passing = [one & other for one, other in zip(passing or found, found, strict=True)]
            if observed.notices_as_much(*passing):
                return True
        return False

    async def _on_broken(
        self, item: CommandCheck, how: Instrumented, candidate: Candidate | None, by: Breaking = "false"
    ) -> Observed | None:
        """Runs the command where every function of the code is broken; None where there is none."""
        base = self.candidate.changed.base
        tests = await run_in_thread(protection_of, self._request.model_copy(update={"protect": None}), base)
        ground = await self._ground("canary", item, candidate)
        if not await run_in_thread(break_functions, ground, tests, by):
            return None
        return await self.runner.run(ground, item, how.quiet())

    async def _by_own_tests(
        self, judgement: Judgement, item: CommandCheck, how: Instrumented, observed: Observations
    ) -> Judgement:
        """Runs the tests that the run wrote on the code from before the run, if that is all that is not proven."""
        request, base = self.run.claim.request, self.candidate.changed.base
        whole = await run_in_thread(Candidate, self.candidate.changed, Protection([]))
        report = (self.left or observed.candidate).report
        paths = [each.path for each in whole.seen]
        own = own_tests(observed.base.report or Report(), report, paths) if report else set[str]()
        if not (report and own):
            return judgement
        why, own = await run_in_thread(suspected, whole, report, own, request.accept)
        if not own:
            return replace(judgement, why=f"{judgement.why}; of the run's own tests {why}")
        tests = await run_in_thread(protection_of, request.model_copy(update={"protect": None}), base)
        code = CodeBefore(tests, {path for path in paths if of_files(report, [path]) & own})
        ground = await run_in_thread(self.grounds.make, "own", base, whole, item.files, Event())
        if not await run_in_thread(lay_functions_before, ground, whole, code):
            return judgement
        self._progress("with the run's own tests on the code from before")
        on_base = await run_in_thread(Candidate, self.candidate.changed, code)
        only = replace(how.quiet(), only=frozenset(own))
        seen = await beside(
            self._on("own", item, only, on_base),
            self.runner.run(ground, item, only),
            self._on("own", item, only, whole),
        )
        return judged_by_own(judgement, own, *seen)

    def _explain(self, judgement: Judgement, base: Observed, now: Observed) -> None:
        """Adds why the command fails, if its surroundings are the reason; then it decides nothing. Blocks."""
        files = self.workspace
        why, is_in_vain = "", False
        if judgement.outcome == "preexisting":
            why, is_in_vain = why_still_red(base, now, files.base)
        elif judgement.outcome == "refuted":
            why = why_newly_red(now, files.path)
            is_in_vain = bool(why)
        elif judgement.outcome == "inconclusive" and now.state == "trouble":
            why = why_not_started(now, files.base)
        judgement.why += f": {why}" if why else ""
        judgement.outcome = "inconclusive" if is_in_vain else judgement.outcome

    async def _now(self, item: CommandCheck, how: Instrumented, base: Observed) -> Observed | None:
        if not self.candidate.seen:
            return base
        self.used = await self._ground("candidate", item, self.candidate)
        return await self.runner.run(self.used, item, how)

    async def _left(self, item: CommandCheck, how: Instrumented) -> Observed | None:
        """Runs the command on everything as the run left it, where the candidate has less."""
        if not self.candidate.restored:
            return None
        whole = await run_in_thread(Candidate, self.candidate.changed, Protection([]))
        if len(whole.seen) == len(self.candidate.seen):
            return None
        return await self._on("candidate", item, how, whole)

    async def _on(
        self, name: Ground | Literal["own"], item: CommandCheck, how: Instrumented, candidate: Candidate | None = None
    ) -> Observed:
        candidate = None if name == "base" else candidate or self.candidate
        return await self.runner.run(await self._ground(name, item, candidate), item, how)

    async def _ground(self, name: Ground | Literal["own"], item: CommandCheck, candidate: Candidate | None) -> Path:
        base = self.candidate.changed.base
        return await run_in_thread(self.grounds.make, name, base, candidate, item.files, Event())

    def _progress(self, where: str) -> None:
        """Reports the execution that begins; without the command, which may be hidden from the run."""
        count = len(self.run.claim.request.verify)
        self.run.emit.emit(ProgressMade(message=f"check {self.number + 1} of {count} runs {where}"))

    def report(self, on: Ground, seen: Observed) -> None:
        self.seen[on] = seen
        tail = self._tail(seen)
        event = CheckCompleted(check=self.number, on=on, ok=seen.ok, exit_code=seen.exit_code, output_tail=tail)
        self.run.emit.emit(event)

    def _tail(self, seen: Observed) -> str:
        """Returns the end of what was printed; masked before it is cut, as a part of a secret would not be known."""
        return self.run.emit.mask.text(seen.output or seen.why)[-TAIL_CHARS:].strip()

    def _made(self, judgement: Judgement, seconds: float) -> Check:
        shown = self.seen.get("candidate")
        return Check(
            item=shown_item(self.item),
            outcome=judgement.outcome,
            why=self.run.emit.mask.text(judgement.why),
            strength=self._strength(),
            own_tests=judgement.own,
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
