"""Snapshots of a run's files: taken after each call that may change them, so that its step reports what it changed."""

from __future__ import annotations

from ...shared.delegation import ToolAgentResult
from ...shared.errors import ErrorType, ToolError
from ...shared.runs.record import FILE_TURNS
from ..attempts import Attempt
from ..core.execution import caught
from ..core.hooks import GoOn, PermittedCall
from ..core.limits import LimitReached
from ..core.outcome import RunOutcome
from ..core.part import Part
from ..tools.base import Effect
from ..tools.context import ToolResult


class Snapshots(Part):
    """Takes the snapshots of one run, and holds its files to what they may have on disk."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    async def before_turn(self, limit: LimitReached | None) -> None:
        """Notes what background commands changed meanwhile: a run can be done again from the files before this turn."""
        if limit is None and any(self._attempt.sandbox.shells):
            await self._attempt.note_files()

    async def around(self, call: PermittedCall, go_on: GoOn) -> ToolResult:
        if call.tool.effect is Effect.PURE:
            return await go_on()
        result = await caught(call.tool, self._begun(go_on))
        removed = await self._note_disk(call.context.call_id)
        return result.but(ToolError(ErrorType.LIMIT_REACHED, removed)) if removed else result

    async def complete(self, result: ToolAgentResult, outcome: RunOutcome) -> ToolAgentResult:
        """Stores before which turns the files are known, in the last write of the run."""
        self._attempt.context.emit.set({FILE_TURNS: self._attempt.stored_turns})
        return result

    async def _begun(self, go_on: GoOn) -> ToolResult:
        await self._attempt.workspace.keep_start()
        return await go_on()

    async def _note_disk(self, step: str) -> str:
        """Returns what was removed of the files because they grew too large; "" where nothing was."""
        attempt = self._attempt
        bounds = attempt.sandbox.bounds
        removed = await bounds.growth.check() if bounds else ""
        most = await bounds.most_on_disk() if bounds else attempt.offer.profile.disk_bytes
        await attempt.note_files(step)
        attempt.context.meter.note_disk(await attempt.workspace.size(most), most)
        return removed
