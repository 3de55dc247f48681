"""A run in doubt: Redis has lost acknowledged writes since it began, perhaps which of its calls were executed."""

from __future__ import annotations

import json

from ...shared.events import ProgressMade
from ...shared.runs.record import DOUBT
from ..attempts import Attempt
from ..core.hooks import GoOn, PermittedCall
from ..core.limits import LimitReached
from ..core.outcome import RunOutcome
from ..core.part import Part, Work
from ..core.run_context import in_doubt
from ..tools.base import Effect
from ..tools.context import ToolResult

NOTICE = (
    "Redis has lost writes that its replicas had acknowledged. The next calls with an effect may have been executed "
    "before, so they are not executed; the model learns this once"
)
WHY = "Redis has lost which calls were executed last, and this one may be among them"


class InDoubt(Part):
    """Answers the calls with an effect of one turn without executing them, so that the model looks first.

    Where the record is behind, the model may ask again for what was done. A call that is known to have begun is left to
    the ledger.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._emit = attempt.context.emit
        self._known = {call for call, state in attempt.context.claim.ledger.items() if _has_begun(state)}
        self._answered = False
        self._over = False

    async def begin(self, work: Work) -> RunOutcome | None:
        self._emit.emit(ProgressMade(message=NOTICE))
        return None

    async def around(self, call: PermittedCall, go_on: GoOn) -> ToolResult:
        if self._over or call.tool.effect is not Effect.EFFECTFUL or call.context.call_id in self._known:
            return await go_on()
        self._answered = True
        return in_doubt(WHY)

    async def before_turn(self, limit: LimitReached | None) -> None:
        if self._answered and not self._over:
            self._over = True
            self._emit.set({DOUBT: ""})


def _has_begun(state: str) -> bool:
    return json.loads(state).get("state") == "started"
