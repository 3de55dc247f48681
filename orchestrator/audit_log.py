"""The audit log: two streams in Redis, one of requests that changed something, one of those that were refused."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field

from ..shared.runs.keys import AUDIT, REFUSED
from ..shared.wire import Timestamp, Wire, now

MAX_ENTRIES = 100_000
MAX_REFUSALS = 10_000
REFUSALS = (401, 403)
"""Statuses of requests that are recorded even if they would only have read."""
CURSOR = re.compile(r"\d{1,19}-\d{1,19}")


class AuditRecord(Wire):
    """What is recorded of a request: who, what and how it ended; never a token, a header or a body."""

    at: Timestamp
    """When the response was sent."""
    token: str | None
    """The token's name, or ``trigger:NAME`` for a delivery that was verified; null without either."""
    client: str | None
    """The address that sent it; behind a proxy on this machine the one that the proxy reports."""
    method: str
    """The HTTP method."""
    route: str
    """The path with its parameters' names, or the path itself where the request was refused before its route."""
    tool: str | None = None
    """The tool, where it is a call over MCP."""
    delegation_ids: list[str] = Field(default_factory=list[str])
    """The delegations that the request was about."""
    status: int
    """The HTTP status of the response."""
    request_id: str
    """The ``X-Request-ID`` of the response."""
    reason: str | None = Field(default=None, exclude_if=lambda reason: reason is None)
    """Why a delivery began no work; left out for all other requests."""
    count: int = 1
    """How many requests it stands for: those of one kind within a minute share an entry where they changed nothing, or
    where their token sends very many."""

    @property
    def changed_nothing(self) -> bool:
        return 400 <= self.status < 500


class AuditEntry(AuditRecord):
    id: str
    """Its place in the log, and the cursor of what precedes it."""


class AuditPage(Wire):
    items: list[AuditEntry]
    """The entries, newest first."""
    next_cursor: str | None = None
    """The ``cursor`` of the next page; null on the last one."""


async def write(redis: Any, record: AuditRecord, retention_seconds: int) -> None:
    """Appends an entry; removes those beyond the most of its stream, and those that are older than the retention."""
    key, most = (REFUSED, MAX_REFUSALS) if record.changed_nothing else (AUDIT, MAX_ENTRIES)
    async with redis.pipeline(transaction=False) as pipeline:
        pipeline.xadd(key, {"e": record.to_json()}, maxlen=most, approximate=False)
        pipeline.xtrim(key, minid=_oldest(retention_seconds), approximate=False)
        pipeline.expire(key, retention_seconds)
        await pipeline.execute()


async def read(redis: Any, limit: int, cursor: str | None, retention_seconds: int) -> AuditPage:
    """Returns a page, newest first; ``cursor`` is that of the previous page."""
    newest = f"({cursor}" if cursor else "+"
    async with redis.pipeline(transaction=False) as pipeline:
        for key in (AUDIT, REFUSED):
            pipeline.xrevrange(key, newest, _oldest(retention_seconds), count=limit + 2)
        streams = await pipeline.execute()
    entries = (entry for stream in streams for entry in stream)
    found = sorted(entries, key=lambda entry: [*map(int, entry[0].split("-"))], reverse=True)
    # Entries of both streams may have the same id: no page ends between them.
    cut = limit + 1 if len(found) > limit and found[limit][0] == found[limit - 1][0] else limit
    items = [
        AuditEntry(id=id, **AuditRecord.model_validate_json(fields["e"]).model_dump()) for id, fields in found[:cut]
    ]
    return AuditPage(items=items, next_cursor=items[-1].id if len(found) > cut else None)


def _oldest(retention_seconds: int) -> str:
    return str(max(0, int((now().timestamp() - retention_seconds) * 1000)))
