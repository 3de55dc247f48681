"""What of the requests to an application gets into the audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from starlette.types import Scope as AsgiScope

from deputize.orchestrator.audit_log import REFUSALS, AuditRecord
from deputize.orchestrator.auth import SAFE_METHODS
from deputize.orchestrator.caller import RequestNote, note_of
from deputize.orchestrator.scopes import MCP_PATH
from deputize.shared.background import RepeatedCause
from deputize.shared.errors import Unavailable
from deputize.shared.wire import now

LONGEST_PATH = 200
LONGEST_ADDRESS = 64
COUNTED_SECONDS = 60.0
"""Seconds from a refusal on in which further ones of its source and kind are only counted."""
MOST_SOURCES = 1000
"""Sources and kinds of refusals that are counted at a time; those beyond share an entry for each status."""


@dataclass(slots=True)
class _Repeated:
    timer: asyncio.TimerHandle
    last: AuditRecord | None = None
    count: int = 0


class AuditRecorder:
    """Records requests with ``write``; where that raises Unavailable (Redis is away) it logs a warning instead."""

    def __init__(
        self, write: Callable[[AuditRecord], Awaitable[None]], counted_seconds: float = COUNTED_SECONDS
    ) -> None:
        self._write_record = write
        self._counted_seconds = counted_seconds
        self._trouble = RepeatedCause("requests are not in the audit log")
        self._repeated: dict[object, _Repeated] = {}
        self._writing: set[asyncio.Task[None]] = set()

    async def response(self, scope: AsgiScope, status: int) -> None:
        """Records a request before its response is sent, if it was one that changes something, or was refused."""
        note = note_of(scope)
        # A message of MCP changes nothing unless it is a call of a tool, which is recorded by itself.
        changes = note.method not in SAFE_METHODS and note.route not in (None, MCP_PATH)
        if changes or status in REFUSALS:
            record = _record(scope, status, note.ids)
            if status not in REFUSALS or not self._is_counted(note, record):
                await self._write(record)

    async def call(self, scope: AsgiScope, tool: str, ids: Sequence[str], status: int) -> None:
        """Records a call of a tool over MCP."""
        await self._write(_record(scope, status, ids, tool))

    async def close(self) -> None:
        """Writes what was only counted so far."""
        for source in [*self._repeated]:
            self._end(source)
        await asyncio.gather(*self._writing)

    def _is_counted(self, note: RequestNote, record: AuditRecord) -> bool:
        """Counts a refusal like one of the last minute. Returns False for the first, which gets an entry at once."""
        source: object = (record.client, record.token, record.status, record.method, note.route)
        if source not in self._repeated and len(self._repeated) >= MOST_SOURCES:
            source = record.status
            record = record.model_copy(update={"client": None})
        if (repeated := self._repeated.get(source)) is None:
            timer = asyncio.get_running_loop().call_later(self._counted_seconds, self._end, source)
            self._repeated[source] = _Repeated(timer)
            return False
        repeated.last = record
        repeated.count += 1
        return True

    def _end(self, source: object) -> None:
        repeated = self._repeated.pop(source)
        repeated.timer.cancel()
        if repeated.last is not None:
            task = asyncio.create_task(self._write(repeated.last.model_copy(update={"count": repeated.count})))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def _write(self, record: AuditRecord) -> None:
        try:
            await self._write_record(record)
            self._trouble.works()
        except Unavailable as error:
            self._trouble.failed(error)


def _record(scope: AsgiScope, status: int, ids: Sequence[str], tool: str | None = None) -> AuditRecord:
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
