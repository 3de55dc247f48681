"""The delivery of a run's changes to their git repository, after everything else."""

from __future__ import annotations

from ...shared.delegation import ToolAgentResult
from ...shared.events import Delivered, Event, StepCompleted
from ...shared.git.evidence import RunNotes
from ..attempts import Attempt
from ..core.outcome import RunOutcome
from ..core.part import Part, Work
from ..workspace.delivery import deliver_changes


class Delivery(Part):
    """Delivers the changes of one run, where its request asks for it."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._model = ""

    async def begin(self, work: Work) -> RunOutcome | None:
        if work.loop:
            self._model = work.loop.model_calls.model.name
        return None

    def hears(self, event: Event, number: int | None) -> None:
        if isinstance(event, StepCompleted) and event.step.denied:
            self._attempt.refusals.note_denied(event.step.tool_name, event.step.arguments.get("url"))

    async def complete(self, result: ToolAgentResult, outcome: RunOutcome) -> ToolAgentResult:
        """Returns the result with what became of its changes in their repository."""
        run = self._attempt.context
        git = await deliver_changes(
            run.claim.request,
            self._attempt.services.settings,
            result,
            self._attempt.facts,
            RunNotes(self._model, self._attempt.refusals.sentences, self._attempt.services.settings.url),
            mask=run.emit.mask.text,
            report=run.report_error,
            note=self._attempt.report_progress,
            check_fence=run.emit.begins,
        )
        if git and git.commit:
            run.emit.emit_at_end(Delivered(git=git))
        return result.model_copy(update={"git": git})
