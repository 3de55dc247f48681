"""The delivery of a run's changes to their git repository, after everything else."""

from __future__ import annotations

from ...shared.delegation import ToolAgentResult
from ...shared.events import Delivered
from ..attempts import Attempt
from ..core.outcome import RunOutcome
from ..core.part import Part
from ..workspace.delivery import deliver_changes


class Delivery(Part):
    """Delivers the changes of one run, where its request asks for it."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    async def complete(self, result: ToolAgentResult, outcome: RunOutcome) -> ToolAgentResult:
        """Returns the result with what became of its changes in their repository."""
        run = self._attempt.context
        git = await deliver_changes(
            run.claim.request,
            self._attempt.services.settings,
            result,
            self._attempt.facts,
            mask=run.emit.mask.text,
            report=run.report_error,
            note=self._attempt.report_progress,
            check_fence=run.emit.check_fence,
        )
        if git and git.commit:
            run.emit.emit_at_end(Delivered(git=git))
        return result.model_copy(update={"git": git})
