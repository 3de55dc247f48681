"""The ledger: what is known of each call of the turn under way, so that no crash makes an effect happen twice.

A call is asked (the history says so), started (written before its effect can begin) and finished (with its answer).
When its turn is answered the history knows all of it, and the ledger is emptied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from shared.errors import ErrorType, ToolError
from worker.emit import Emitter
from worker.models.base import Call
from worker.steps import in_doubt
from worker.tools.base import AnyTool, Effect, ToolResult
from worker.tools.context import ToolContext


class Ledger:
    """One run's ledger; ``kept`` is what earlier attempts wrote of the turn they left open, ``interruption`` why.

    ``again``: workers were lost in a row. ``stalled``: the last one's loop stood still, perhaps in an open call.
    """

    def __init__(
        self,
        emit: Emitter,
        kept: Mapping[str, str],
        interruption: str = "the worker was lost",
        *,
        again: bool = False,
        stalled: bool = False,
    ) -> None:
        self._emit = emit
        self._interruption = interruption
        self._again = {"again": True} if again else {}
        self._stalled = stalled
        self._kept: dict[str, dict[str, Any]] = {call: json.loads(state) for call, state in kept.items()}

    async def risk(self, calls: Sequence[Call]) -> None:
        """Keeps, before any of these calls is looked at, that this is not the first attempt at them or at their turn.

        One that takes its worker down would take down the next one, too: so there is no third.
        """
        if not self._again:
            return
        for call in calls:
            if self.finished(call.key) is None:
                self._emit.mark(call.key, json.dumps({**self._kept.get(call.key, {"state": "asked"}), **self._again}))
        await self._emit.settled()

    def check(self, call: str) -> None:
        """Raises ``ToolError`` for a call that is not to be judged again: it may be what its worker was lost to.

        One that had started is left to ``settle``.
        """
        known = self._kept.get(call, {}).get("state") in ("started", "finished")
        if not known and (doubt := self._suspicion(call)):
            raise ToolError(ErrorType.CANCELLED, doubt.error or "")

    async def start(self, call: str, tool: AnyTool, params: Any, context: ToolContext) -> None:
        """Notes that the call begins, and waits until that is kept where the call may have an effect."""
        if tool.effect is Effect.PURE:
            return
        facts = await tool.facts(context, params)
        self._emit.mark(call, json.dumps({"state": "started", "facts": facts, **self._again}))
        await self._emit.settled()

    def finish(self, call: str, result: ToolResult) -> None:
        """Notes the call's answer together with its step's end."""
        state = {"state": "finished", "content": result.content, "error": result.error, "type": result.error_type}
        self._emit.mark(call, to_json(state).decode())

    def clear(self) -> None:
        """The turn is answered.

        That is progress, so workers lost before it no longer count; but not where an earlier attempt had begun its
        calls: what kills its worker in every turn would otherwise never be given up.
        """
        if not self._kept:
            self._emit.set({"lost": "0"})
        self._stalled = False
        self._kept.clear()
        self._emit.mark("", "")

    def finished(self, call: str) -> ToolResult | None:
        """The answer that an earlier attempt already had."""
        state = self._kept.get(call, {})
        if state.get("state") != "finished":
            return None
        kind = ErrorType(state["type"]) if state["type"] else None
        return ToolResult(content=state["content"], error=state["error"], error_type=kind)

    async def settle(self, call: str, tool: AnyTool, params: Any, context: ToolContext) -> ToolResult | None:
        """Of a call that was under way when the attempt before ended: its answer, or None where it is to be executed.

        What nobody can know is told to the model as such, and never silently repeated.
        """
        if self._kept.get(call, {}).get("state") != "started" or tool.effect is Effect.PURE:
            return None
        found = await tool.probe(context, params, self._kept[call]["facts"])
        if found is None:
            return in_doubt(f"{self._interruption} while this call was under way")
        return found or self._suspicion(call)

    def _suspicion(self, call: str) -> ToolResult | None:
        if self._stalled:
            return in_doubt("the worker stood still while this call was under way, and was ended")
        if self._kept.get(call, {}).get("again"):
            return in_doubt("two workers were lost while this call was under way")
        return None
