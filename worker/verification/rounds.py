"""Rounds: a refuted result goes back to the model with what failed, and a lost worker's verification is made again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from ...shared.delegation import Status, TerminationReason
from ...shared.facts import Check, CommandCheck, Verification, VerifyItem
from ...shared.markup import harmless
from ...shared.text import clip
from ..attempts import RunOutcome
from ..loop import Loop
from ..run_context import RunContext
from .verifier import Verifier

MAX_OUTPUT_CHARS = 6000
"""Of all refuted checks together, in what the model reads."""
_SHORTEST_LINE = 6
"""Characters of a line of a hidden file from which it is recognized in an output."""
_HIDDEN_LINE = "[a line of the check]"
_REFUTING = ("refuted", "tampered")
Attempt = Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, RunOutcome]]
Await = Callable[[RunOutcome, Coroutine[Any, Any, Verification]], Coroutine[Any, Any, tuple[RunOutcome, Verification]]]


@dataclass(slots=True)
class Rounds:
    """The end of one run that has checks."""

    run: RunContext
    verifier: Verifier

    async def work(self, loop: Loop, attempt: Attempt, checked: Await) -> tuple[RunOutcome, Verification]:
        """Works, checks and works on, until the result stands or a limit is reached.

        ``attempt`` lets the loop work to its end under the run's limits, ``checked`` awaits a verification so.
        """
        while True:
            outcome = await attempt(loop.work())
            if outcome.status is Status.CANCELLED:
                return outcome, Verification.incomplete(f"the delegation was {outcome.reason.value.replace('_', ' ')}")
            await loop.tool_calls.run_tools.context.sandbox.shells.end()  # nothing may change what is checked
            outcome, verification = await checked(outcome, self.verifier.verify())
            verification = verification.model_copy(update={"rounds": self.run.verify_rounds})
            if not self._goes_back(outcome, verification):
                return outcome, verification
            self.run.verify_rounds += 1
            self.run.take_back_output()
            loop.conversation.ask(refutation(self.run.claim.request.verify, verification.checks))
            self.run.checkpoint(loop.conversation.billed)

    async def confirmed(self, verification: Verification) -> Verification:
        """Returns the verification at the end of the run, which is about its files only if they are still the same."""
        if verification.verdict == "refuted":
            refuted = next(check for check in verification.checks if check.outcome in _REFUTING)
            self.run.report_error(f"the checks refute the result: {refuted.why}", "verification")
        elif verification.verdict == "verified" and not await self.verifier.is_current():
            why = "files changed after they were checked"
            return verification.model_copy(update={"verdict": "inconclusive", "why": why})
        return verification

    def _goes_back(self, outcome: RunOutcome, verification: Verification) -> bool:
        return (
            outcome.reason is TerminationReason.COMPLETED
            and verification.verdict == "refuted"
            and self.run.verify_rounds < self.run.claim.request.max_verify_rounds
            and self.run.meter.may_go_on
        )


def refutation(items: Sequence[VerifyItem], checks: Sequence[Check]) -> str:
    """Returns the message about the checks that refute the result; of a hidden one only its output."""
    refuted = [pair for pair in zip(items, checks, strict=True) if pair[1].outcome in _REFUTING]
    share = MAX_OUTPUT_CHARS // max(1, len(refuted))
    parts = [harmless(_part(item, check, share)).text for item, check in refuted]
    return (
        '<system_hint type="refuted">Your result was checked on files made of the original ones and your changes, '
        "without the network and without files that git ignores; tests and their configuration were as you found "
        "them. It does not hold. Correct the cause, then report again. Background commands have been ended."
        "</system_hint>\n\n" + "\n\n".join(parts)
    )


def _part(item: VerifyItem, check: Check, most: int) -> str:
    if isinstance(item, CommandCheck) and item.hidden:
        head, output = "A check failed.", without_lines_of(item, check.output_tail)
    else:
        head = f"The check {item.run if isinstance(item, CommandCheck) else item.to_json()} failed: {check.why}."
        output = check.output_tail
    return f"{head}\n{clip(output, most)}".strip()


def without_lines_of(item: CommandCheck, output: str) -> str:
    """Returns the output with every line left out that holds a line of the check's own files."""
    secret = {line.strip() for text in item.files.values() for line in text.splitlines()}
    secret = {line for line in secret if len(line) >= _SHORTEST_LINE}
    return "\n".join(_HIDDEN_LINE if any(each in line for each in secret) else line for line in output.splitlines())
