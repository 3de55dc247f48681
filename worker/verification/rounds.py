"""Rounds: a result that falls short of what is required goes back to the model with the reason and the output."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from ...shared.checks import CommandCheck, VerifyItem
from ...shared.delegation import Status, TerminationReason, ToolAgentResult
from ...shared.facts import SUFFICIENT, Check, Verification
from ...shared.markup import harmless
from ...shared.request_options import Require
from ...shared.text import clip
from ..attempts import Attempt
from ..core.outcome import RunCancelled, RunOutcome
from ..core.part import InTime, Part, Work
from .executions import EXECUTIONS
from .known_verdicts import KnownVerdicts, is_attempt
from .review import Reviewer
from .verdict import name_without_parameters
from .verifier import EARLY_SECONDS, Verifier

MAX_OUTPUT_CHARS = 6000
"""Of all refuted checks together, in what the model reads."""
_DEFINED = re.compile(r"\b(?:def|func|fn|function|void)\s+(\w+)")
"""Names of functions in a file of tests."""
ROUNDS = "verifyRounds"
"""The field of the checkpoint with their number."""
_CANCELLED = "the delegation was cancelled"


class Rounds(Part):
    """The checks of one run, at the end of its work."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._run = attempt.context
        self._work: Work | None = None
        self._verifier: Verifier | None = None
        self._count = self._run.claim.checkpoint.get(ROUNDS, 0)

    @property
    def _count(self) -> int:
        """How often the result went back to the model because a check refuted it."""
        return self._run.kept[ROUNDS]

    @_count.setter
    def _count(self, number: int) -> None:
        self._run.kept[ROUNDS] = number

    async def begin(self, work: Work) -> RunOutcome | None:
        self._work = work
        reviewer = Reviewer(
            self._attempt, lambda: work.loop.conversation.last_words if work.loop else "", lambda: self._count
        )
        kinds, is_one_of_several = self._attempt.services.checks, is_attempt(self._run.claim.request)
        known = KnownVerdicts(self._run, self._attempt.services.store) if is_one_of_several else None
        made = Verifier(self._run, self._attempt.offer, self._attempt.workspace, reviewer, kinds=kinds, known=known)
        self._verifier = await made.__aenter__()
        self._verifier.begin()
        try:
            if why := await work.in_time(self._verifier.cannot_start(), EARLY_SECONDS * 2):
                return self._not_begun(why)
        except RunCancelled:
            self._attempt.verification = Verification.incomplete(_CANCELLED)
            return RunOutcome(TerminationReason.CANCELLED, "Cancelled before its first turn.")
        except TimeoutError:
            pass  # whatever it waits for, the work can begin
        return None

    async def settle(self, outcome: RunOutcome) -> RunOutcome | None:
        """Returns None where the result falls short of what is required, and went back to the model."""
        if not outcome.of_loop:
            return outcome
        assert self._work, "it has begun"
        assert self._verifier
        loop = self._work.loop
        assert loop
        if outcome.status is Status.CANCELLED:
            why = f"the delegation was {outcome.reason.value.replace('_', ' ')}"
            self._attempt.verification = Verification.incomplete(why)
            return outcome
        await loop.tool_calls.context.sandbox.shells.end()  # nothing may change what is checked
        outcome, verification = await self._checked(outcome, self._work.in_time, self._verifier)
        verification = verification.model_copy(update={"rounds": self._count})
        if not self._goes_back(outcome, verification):
            self._attempt.verification = verification
            return outcome
        self._count += 1
        self._run.take_back_output()
        request = self._run.claim.request
        known = await self._verifier.tests_on_base()
        loop.conversation.ask(returned(request.verify, verification, request.require, known))
        self._run.checkpoint(loop.conversation.checkpoint())
        return None

    def _not_begun(self, why: str) -> RunOutcome:
        self._run.report_error(why, TerminationReason.CHECKS_CANNOT_START.value)
        self._attempt.verification = Verification.incomplete(why)
        return RunOutcome(TerminationReason.CHECKS_CANNOT_START, why, may_pass=False)

    async def _checked(
        self, outcome: RunOutcome, in_time: InTime, verifier: Verifier
    ) -> tuple[RunOutcome, Verification]:
        seconds = self._run.claim.request.verify_timeout_seconds * EXECUTIONS
        try:
            return outcome, await in_time(verifier.verify(), seconds)
        except TimeoutError:
            return outcome, Verification.incomplete(f"they did not end within {seconds:g} s (verifyTimeoutSeconds)")
        except RunCancelled:
            return replace(outcome, reason=TerminationReason.CANCELLED), Verification.incomplete(_CANCELLED)

    async def end(self) -> None:
        """Closes the checks. Their verdict is about the run's files only if they are still the same."""
        if self._verifier is None:
            return
        await self._verifier.__aexit__()
        if (verification := self._attempt.verification) is None:
            return
        if verification.verdict in SUFFICIENT["improved"] and not await self._verifier.is_current():
            why = "files changed after they were checked"
            verification = verification.model_copy(update={"verdict": "inconclusive", "why": why})
        if why := verification.shortfall(self._run.claim.request.require):
            self._run.report_error(why, "verification")
        self._attempt.verification = verification

    async def complete(self, result: ToolAgentResult, outcome: RunOutcome) -> ToolAgentResult:
        return with_verdict(result, self._attempt)

    def _goes_back(self, outcome: RunOutcome, verification: Verification) -> bool:
        return (
            outcome.reason is TerminationReason.COMPLETED
            and verification.shortfall(self._run.claim.request.require) != ""
            and _may_improve(verification.checks)
            and self._count < self._run.claim.request.max_verify_rounds
            and self._run.meter.may_go_on
        )


def with_verdict(result: ToolAgentResult, attempt: Attempt) -> ToolAgentResult:
    """Returns the result with the result of its checks. One that falls short of what is required is a failure."""
    verification, request = attempt.verification, attempt.context.claim.request
    if verification is None:
        verification = Verification.incomplete("the run ended before") if request.verify else Verification()
    verification = verification.model_copy(update={"require": request.require if request.verify else None})
    falls_short = result.status is Status.SUCCEEDED and not verification.is_met
    status = Status.FAILED if falls_short else result.status
    return result.model_copy(update={"verification": verification, "status": status})


def _is_in_the_way(check: Check) -> bool:
    return check.outcome not in ("evidence", "no_regression")


def _may_improve(checks: Sequence[Check]) -> bool:
    """Whether work may change the verdict: not where each check in its way never succeeded and decides nothing."""
    in_the_way = [check for check in checks if _is_in_the_way(check)]
    stuck = [each for each in in_the_way if each.outcome == "inconclusive" and each.base == each.candidate != "green"]
    return bool(checks) and (not in_the_way or len(stuck) < len(in_the_way))


def returned(
    items: Sequence[VerifyItem], verification: Verification, require: Require, known: Sequence[Collection[str]]
) -> str:
    """Returns the message about a result that falls short of what is required.

    ``known``: the tests that each check reported before the run.
    """
    rows = [row for row in zip(items, verification.checks, known, strict=True) if _is_in_the_way(row[1])]
    share = MAX_OUTPUT_CHARS // max(1, len(rows))
    parts = [_part(item, check, tests, share) for item, check, tests in rows] or [f"{verification.why}."]
    refuted = verification.verdict == "refuted"
    what = "It does not hold." if refuted else f"The verdict is {verification.verdict}, and {require} is required."
    return (
        f'<system_hint type="{"refuted" if refuted else "not_proven"}">Your result was checked on files made of the '
        "original ones and your changes, without the network and without files that git ignores; tests and their "
        f"configuration were as you found them. {what} Correct the cause, then report again. Background commands have "
        "been ended.</system_hint>\n\n" + "\n\n".join(harmless(part).text for part in parts)
    )


def _part(item: VerifyItem, check: Check, known: Collection[str], most: int) -> str:
    if isinstance(item, CommandCheck) and item.is_hidden:
        names = ", ".join(failing_names(item, check, known))
        return clip(f"A hidden check falls short.{f' These of its tests do not pass: {names}' if names else ''}", most)
    asked = item.run if isinstance(item, CommandCheck) else item.to_json()
    return f"The check {asked} falls short: {check.why}.\n{clip(check.output_tail, most)}".strip()


def failing_names(item: CommandCheck, check: Check, known: Collection[str]) -> list[str]:
    """Returns the names of the tests of a hidden check that do not pass.

    Parameters are not part of them, as these are the hidden values. The code under test may have invented an id:
    only those count that were reported before the run, and names of functions in the check's files.
    """
    known_names = {name_without_parameters(id) for id in known}
    defined = {name for text in item.files.values() for name in _DEFINED.findall(text)}
    found = set[str]()
    for id in (id for kind, ids in check.tests.items() if kind != "fixed" for id in ids):
        name = name_without_parameters(id)
        last = re.split(r"\W", name)[-1]
        found |= {name} & known_names or {last} & defined
    return sorted(found)
