"""What the conversation of a run reads: bounded texts without imitations of control markup, and their sources."""

from __future__ import annotations

import json

from ...shared.connection import retried
from ...shared.facts import Trust
from ...shared.runs.record import TRUST, UPSTREAMS, trust_of
from ..attempts import Attempt
from ..core.hooks import GoOn, PermittedCall
from ..core.outcome import RunOutcome
from ..core.part import Part, Work
from ..tools.bounded_result import bounded
from ..tools.context import ToolResult


class Reading(Part):
    """Bounds the results of one run's calls, and notes where what the model reads comes from."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._sources = attempt.reading

    async def begin(self, work: Work) -> RunOutcome | None:
        """Notes the task, and what those had read who wrote it. A merge has no task: it notes what it merges."""
        if work.loop:
            self._sources.commands_reach_hosts = bool(self._attempt.offer.profile.allowed_hosts)
            if self._attempt.context.claim.request.tool_call_style == "xml":
                self._sources.tags = tuple(work.loop.tool_calls.kit)
            self._sources.begin(await self._inherited())
        return None

    async def around(self, call: PermittedCall, go_on: GoOn) -> ToolResult:
        result = ToolResult()  # of a call that is interrupted
        try:
            result = await go_on()
            return await bounded(result, call.tool, call.context, clean=self._sources.harmless)
        finally:
            self._sources.note(call.tool, call.params, result)

    async def _inherited(self) -> Trust:
        """Returns what those had read who wrote the task, and the conversation that the run continues."""
        claim, redis = self._attempt.context.claim, self._attempt.services.store.redis
        if TRUST in claim.kept:
            return claim.kept[TRUST]
        trust = Trust(neutralized=self._attempt.upstreams().places)
        for report in json.loads(claim.kept.get(UPSTREAMS, "[]")):
            trust = trust.plus(Trust(tainted_by=report.get("taintedBy", [])).read_from(report["delegationId"]))
        if parent := claim.request.parent_id:
            trust = (await retried(lambda: trust_of(redis, parent))).handed_on()
        if earlier := claim.request.builds_on:
            trust = trust.plus(await retried(lambda: trust_of(redis, earlier)))
        return trust
