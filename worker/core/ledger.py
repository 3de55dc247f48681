"""The ledger: the state of each call of the current turn, so that no crash makes an effect happen twice.

A call is requested (recorded in the history), started (written before its effect can begin) and finished (with its
result). When the turn's results are in the history, the ledger is cleared.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic_core import to_json

from ...shared.errors import ErrorType, ToolError, Unavailable
from ...shared.runs.record import PROGRESS
from ..models.base import Call
from ..tools.base import AnyTool, Effect, Recoverable, ToolResult
from ..tools.context import ToolContext
from .emit import Emitter
from .run_context import in_doubt

AHEAD = "this call had begun before Redis lost its records"


class Ledger:
    """One run's ledger. ``kept``: entries of the turn that earlier attempts left open; ``interruption``: the reason.

    ``again``: workers were lost in a row. ``stalled``: the last worker's loop was blocked, perhaps by an open call.
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

    async def record_retry(self, calls: Sequence[Call]) -> None:
        """Stores, before any of these calls is judged, that this is not the first attempt at them or at their turn.

        A call that crashes its worker would crash the next one, too: there is no third attempt.
        """
        if not self._again:
            return
        for call in calls:
            if self._kept.get(call.key, {}).get("state") not in ("finished", "waits"):
                state = self._kept.get(call.key, {"state": "asked"}) | self._again
                self._emit.set_call_state(call.key, json.dumps(state))
        await self._emit.settled()

    def check(self, call: str) -> None:
        """Raises ``ToolError`` for a call that must not be judged again, because it may have crashed its worker.

        One that had started is left to ``resolve``; one that waited for permission did nothing meanwhile.
        """
        known = self._kept.get(call, {}).get("state") in ("waits", "started", "finished")
        if not known and (doubt := self._suspicion(call)):
            raise ToolError(ErrorType.CANCELLED, doubt.error or "")

    @contextmanager
    def waiting(self, calls: Sequence[str]) -> Generator[None]:
        """Records, while the block runs, that none of these calls is under way: a person is waited for.

        A worker that is lost meanwhile was not lost by one of them.
        """
        known = {call: self._kept.get(call, {"state": "asked"}) for call in calls}
        idle = [call for call, kept in known.items() if kept["state"] in ("asked", "waits")]
        for call in idle:
            self._emit.set_call_state(call, json.dumps({"state": "waits"}))
        yield
        for call in idle:
            self._emit.set_call_state(call, json.dumps({"state": "asked"}))

    async def start(self, call: str, tool: AnyTool, params: Any, context: ToolContext) -> None:
        """Records that the call begins; if it may have an effect, waits until that is stored. Raises ``ToolError``."""
        if tool.effect is Effect.PURE:
            return
        facts = await tool.facts(context, params) if isinstance(tool, Recoverable) else {}
        self._emit.set_call_state(call, json.dumps({"state": "started", "facts": facts, **self._again}))
        try:
            await self._emit.begins()
        except Unavailable as error:
            raise ToolError(ErrorType.EXECUTION_FAILED, f"not executed: {error}") from error

    def finish(self, call: str, result: ToolResult) -> None:
        """Records the call's result together with its step's end."""
        state = {"state": "finished", "content": result.content, "error": result.error, "type": result.error_type}
        self._emit.set_call_state(call, to_json(state).decode())

    def clear(self) -> None:
        """Clears the ledger when the turn's results are complete.

        That is progress, so workers lost before it no longer count, except where an earlier attempt had begun its
        calls: a run that crashes its worker in every turn would otherwise never be given up.
        """
        if not self._kept:
            self._emit.set(PROGRESS)
        self._stalled = False
        self._kept.clear()
        self._emit.set_call_state("", "")

    def finished(self, call: str) -> ToolResult | None:
        """Returns the result that an earlier attempt stored, or None."""
        state = self._kept.get(call, {})
        if state.get("state") != "finished":
            return None
        kind = ErrorType(state["type"]) if state["type"] else None
        return ToolResult(content=state["content"], error=state["error"], error_type=kind)

    def left(self, call: str) -> ToolResult | None:
        """Returns the result of a call that is not executed any more: stored, in doubt, or None if it never began."""
        began = self._kept.get(call, {}).get("state") == "started"
        return in_doubt(f"{self._interruption} while this call was under way") if began else self.finished(call)

    async def resolve(self, call: str, tool: AnyTool, params: Any, context: ToolContext) -> ToolResult | None:
        """Returns the result of a call that was running when the last attempt ended; None where it is to be executed.

        An unknown outcome is reported to the model as such, and the call is never silently repeated. So it is where the
        disk knows of a beginning that the record has lost, as after a restart of Redis with an older state.
        """
        if tool.effect is Effect.PURE:
            return None
        if self._kept.get(call, {}).get("state") != "started":
            return in_doubt(AHEAD) if context.sandbox.has_begun(call) else None
        found = None if tool.effect is Effect.EFFECTFUL else False
        if isinstance(tool, Recoverable):
            found = await tool.probe(context, params, self._kept[call]["facts"])
        if found is None:
            return in_doubt(f"{self._interruption} while this call was under way")
        return found or self._suspicion(call)

    def _suspicion(self, call: str) -> ToolResult | None:
        if self._stalled:
            return in_doubt("the worker's event loop was blocked while this call was under way")
        if self._kept.get(call, {}).get("again"):
            return in_doubt("two workers were lost while this call was under way")
        return None
