"""Retries: a run that failed for a reason that may pass is done again from the start, as its request asks."""

from __future__ import annotations

from dataclasses import replace

from ...shared.events import RunRetried
from ..attempts import Attempt
from ..core.outcome import RunOutcome
from ..core.part import Part

MAX_DELAY_SECONDS = 60.0


class Retry(Part):
    """Lets another try of one run follow a failed one."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    async def settle(self, outcome: RunOutcome) -> RunOutcome | None:
        run, first_delay = self._attempt.context, self._attempt.services.retry_seconds
        asked, done = run.claim.request.retry, run.claim.past.retries
        if asked is None or done >= asked.attempts or outcome.reason.value not in asked.on:
            return outcome
        if not outcome.may_pass or run.meter.is_spent or run.meter.wraps_up:
            return outcome
        again = RunRetried(
            reason=outcome.reason,
            error=outcome.masked(run.emit.mask.text).summary,
            retry=done + 1,
            of=asked.attempts,
            delay_seconds=min(first_delay * 2**done, MAX_DELAY_SECONDS),
        )
        return replace(outcome, again=again)
