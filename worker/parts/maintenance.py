"""The maintenance of a run's environment, before its first turn."""

from __future__ import annotations

from ...shared.delegation import TerminationReason
from ..attempts import Attempt
from ..core.outcome import RunOutcome
from ..core.part import Part, Work
from ..environments.maintenance import maintained


class Maintenance(Part):
    """Lets the script of the environment run in each attempt, whose changes to what was prepared are new."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    async def begin(self, work: Work) -> RunOutcome | None:
        tools = self._attempt.workspace.tools
        if work.loop is None or tools is None:
            return None
        left = self._attempt.context.meter
        why = await work.until_stopped(maintained(self._attempt.sandbox, tools), lambda: left.time_for_summary)
        if not why:
            return None
        reason = TerminationReason.ENVIRONMENT_FAILED
        self._attempt.context.report_error(why, reason.value)
        return RunOutcome(reason, why)
