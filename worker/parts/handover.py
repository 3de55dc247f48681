"""A run is handed over at its next turn or call once its worker is asked to stop: nothing is cut off there."""

from __future__ import annotations

from ..attempts import Attempt
from ..core.hooks import GoOn, PermittedCall
from ..core.limits import LimitReached
from ..core.part import Part
from ..tools.context import ToolResult


class _AttemptEnd(Exception):
    """Ends this attempt; the next one goes on where it ended."""


class Handover(Part):
    """Begins no turn and no call of one run while its worker hands its runs over.

    The final turn is begun: only this attempt may know for what limit it is made.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._emit, self._hands_over = attempt.context.emit, attempt.services.hands_over

    async def before_turn(self, limit: LimitReached | None) -> None:
        if limit is None:
            self._end_here()

    async def around(self, call: PermittedCall, go_on: GoOn) -> ToolResult:
        self._end_here()
        return await go_on()

    def _end_here(self) -> None:
        if self._hands_over.is_set():
            self._emit.hand_over()
            raise _AttemptEnd("its worker was asked to stop")
