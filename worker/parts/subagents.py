"""Subagents: calls of the model make child delegations, which later attempts find again, and which end with the run."""

from __future__ import annotations

from dataclasses import replace

from ..attempts import Attempt
from ..core.limits import LimitReached
from ..core.outcome import RunOutcome
from ..core.part import Part, Work
from ..subagents.children import Children, SubagentRunner
from ..subagents.inheritance import Inheritance
from ..tools.context import SUBMIT


class Subagents(Part):
    """The child delegations of one run."""

    must_settle = True  # the children would go on and spend

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._children = Children(attempt.context, attempt.services)

    async def begin(self, work: Work) -> RunOutcome | None:
        if work.loop:
            await self._children.recall()
            run, services, calls = self._attempt.context, self._attempt.services, work.loop.tool_calls
            kit = {name: tool for name, tool in calls.kit.items() if name != SUBMIT}
            rights = Inheritance(run.claim, services.settings, kit, self._attempt.workspace.path)
            unanswered, trace_of = work.loop.conversation.unanswered, self._attempt.trace_of
            runner = SubagentRunner(run, services, self._children, rights, unanswered, trace_of)
            calls.context = replace(calls.context, subagents=runner)
        return None

    async def before_turn(self, limit: LimitReached | None) -> None:
        """Ends the children before the final turn, for which their tokens and money are then left."""
        if limit:
            await self._end()

    async def settle(self, outcome: RunOutcome) -> RunOutcome | None:
        await self._end()
        return outcome

    async def _end(self) -> None:
        report = self._attempt.context.report_error
        for id in await self._children.end():
            report(f"subagent {id} was cancelled, and has not reported its usage yet", "subagent")
