"""What of the requests to an application gets into the audit log."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import Scope as AsgiScope

from deputize.orchestrator.audit_log import AuditRecord
from deputize.orchestrator.auth import SAFE_METHODS
from deputize.orchestrator.caller import note_of
from deputize.orchestrator.scopes import MCP_PATH
from deputize.shared.background import RepeatedCause
from deputize.shared.errors import Unavailable
from deputize.shared.wire import now

REFUSALS = (401, 403)
LONGEST_PATH = 200
LONGEST_ADDRESS = 64


class AuditRecorder:
    """Records the requests of an application with its service; while Redis is away it logs a warning instead."""

    def __init__(self) -> None:
        self._trouble = RepeatedCause("requests are not in the audit log")

    async def response(self, scope: AsgiScope, status: int) -> None:
        """Records a request before its response is sent, if it was one that changes something, or was refused."""
        note = note_of(scope)
        # A message of MCP changes nothing unless it is a call of a tool, which is recorded by itself.
        changes = note.method not in SAFE_METHODS and note.route not in (None, MCP_PATH)
        if changes or status in REFUSALS:
            await self._write(scope, self._record(scope, status, note.ids))

    async def call(self, scope: AsgiScope, tool: str, ids: Sequence[str], status: int) -> None:
        """Records a call of a tool over MCP."""
        await self._write(scope, self._record(scope, status, ids, tool))

    def _record(self, scope: AsgiScope, status: int, ids: Sequence[str], tool: str | None = None) -> AuditRecord:
        note = note_of(scope)
        return AuditRecord(
            at=now(),
            token=note.token,
            client=str(scope["client"][0])[:LONGEST_ADDRESS] if scope.get("client") else None,
            method=note.method,
            route=note.route or scope["path"][:LONGEST_PATH],
            tool=tool,
            delegation_ids=list(dict.fromkeys(ids)),
            status=status,
            request_id=note.request_id,
        )

    async def _write(self, scope: AsgiScope, record: AuditRecord) -> None:
        try:
            await scope["app"].state.service.record(record)
            self._trouble.works()
        except Unavailable as error:
            self._trouble.failed(error)
