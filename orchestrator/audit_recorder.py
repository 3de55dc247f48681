"""The audit log's entries, made of the requests to an application."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from starlette.types import Scope as AsgiScope

from ..shared.background import RepeatedCause
from ..shared.errors import Unavailable
from ..shared.wire import now
from .access_tokens import note_of
from .audit_log import REFUSALS, AuditRecord
from .auth import SAFE_METHODS
from .scopes import MCP_PATH

LONGEST_PATH = 200
LONGEST_ADDRESS = 64
COUNTED_SECONDS = 60.0
"""The time in which requests of one kind share an entry, where they changed nothing or are very many."""
MOST_OF_CALLER = 100
"""Entries of its own that a token (or an address, where there is none) may have in that time."""
MOST_KINDS = 1000
"""Kinds of requests that are kept apart in that time; further ones share an entry for each token and status."""
MOST_IDS = 1000
"""Delegations that one entry names."""


class AuditRecorder:
    """Records requests with ``write``; where that raises Unavailable (Redis is away) it logs a warning instead."""

    def __init__(
        self, write: Callable[[AuditRecord], Awaitable[None]], counted_seconds: float = COUNTED_SECONDS
    ) -> None:
        self._write_record = write
        self._counted_seconds = counted_seconds
        self._trouble = RepeatedCause("requests are not in the audit log")
        self._kinds: dict[object, AuditRecord | None] = {}
        """The record of each kind's further requests, which are only counted."""
        self._entries = Counter[str | None]()
        self._end: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[None]] = set()

    async def response(self, scope: AsgiScope, status: int) -> None:
        """Records a request before its response is sent, if it was one that changes something, or was refused."""
        note = note_of(scope)
        # A message of MCP changes nothing unless it is a call of a tool, which is recorded by itself.
        changes = note.method not in SAFE_METHODS and note.route not in (None, MCP_PATH)
        if changes or status in REFUSALS:
            await self._record(_record(scope, status, note.ids))

    async def call(self, scope: AsgiScope, tool: str, ids: Sequence[str], status: int) -> None:
        """Records a call of a tool over MCP."""
        await self._record(_record(scope, status, ids, tool))

    async def close(self) -> None:
        """Writes what was only counted so far."""
        self._write_counted()
        await asyncio.gather(*self._writing)

    async def _record(self, record: AuditRecord) -> None:
        """Writes a record, or counts it: where its kind changed nothing and was there, or its caller has too many."""
        if self._end is None:
            self._end = asyncio.get_running_loop().call_later(self._counted_seconds, self._write_counted)
        caller = record.token or record.client
        kind: object = (record.client, record.token, record.status, record.method, record.route, record.tool)
        is_full = self._entries[caller] >= MOST_OF_CALLER
        if kind not in self._kinds and (is_full or len(self._kinds) >= MOST_KINDS):
            kind = (record.token, record.status)
            record = record.model_copy(update={"client": None})
        if kind not in self._kinds or not (record.changed_nothing or is_full):
            self._kinds.setdefault(kind, None)
            self._entries[caller] += 1
            await self._write(record)
            return
        if (before := self._kinds[kind]) is not None:
            ids = record.delegation_ids if record.changed_nothing else before.delegation_ids + record.delegation_ids
            record = record.model_copy(update={"count": before.count + 1, "delegation_ids": ids})
        self._kinds[kind] = record
        if len(record.delegation_ids) >= MOST_IDS:
            self._write_later(record)
            self._kinds[kind] = None

    def _write_counted(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
        for record in filter(None, self._kinds.values()):
            self._write_later(record)
        self._kinds.clear()
        self._entries.clear()

    def _write_later(self, record: AuditRecord) -> None:
        task = asyncio.create_task(self._write(record))
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
        reason=note.reason,
    )
