"""The work of a run without a model: one part does it, within the run's time."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from ...shared.delegation import TerminationReason
from .outcome import RunCancelled, RunOutcome
from .part import Work
from .run_context import RunContext


async def done_within(run: RunContext, work: Work, doing: Coroutine[Any, Any, RunOutcome], what: str) -> RunOutcome:
    """Returns the outcome of what is done in place of a model; ``what`` is done, as in `results were merged`."""
    try:
        return await work.until_stopped(doing, lambda: run.meter.time_left)
    except TimeoutError:
        return RunOutcome((limit := run.meter.out_of_time()).reason, f"Stopped: {limit}.")
    except RunCancelled:
        return RunOutcome(TerminationReason.CANCELLED, f"Cancelled while {what}.")
