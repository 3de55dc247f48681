"""The audit log: a stream in Redis with an entry for each request that changed something or was refused."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field

from deputize.shared.runs.keys import AUDIT
from deputize.shared.wire import Timestamp, Wire, now

MAX_ENTRIES = 100_000
CURSOR = re.compile(r"\d{1,19}-\d{1,19}")


class AuditRecord(Wire):
    """What is recorded of a request: who, what and how it ended; never a token, a header or a body."""

    at: Timestamp
    token: str | None
    """The token's name; null where none is asked for, and where the request had no valid one."""
    client: str | None
    """The address that sent it; behind a proxy on this machine the one that the proxy reports."""
    method: str
    route: str
    """The path with its parameters' names, or the path itself where the request was refused before its route."""
    tool: str | None = None
    """The tool, where it is a call over MCP."""
    delegation_ids: list[str] = Field(default_factory=list[str])
    status: int
    request_id: str


class AuditEntry(AuditRecord):
    id: str
    """Its place in the log, and the cursor of what precedes it."""


class AuditPage(Wire):
    items: list[AuditEntry]
    next_cursor: str | None = None


async def write(redis: Any, record: AuditRecord, retention_seconds: int) -> None:
    """Appends an entry; removes those beyond MAX_ENTRIES, and those that are older than the retention."""
    async with redis.pipeline(transaction=False) as pipeline:
        pipeline.xadd(AUDIT, {"e": record.to_json()}, maxlen=MAX_ENTRIES, approximate=False)
        pipeline.xtrim(AUDIT, minid=_oldest(retention_seconds), approximate=False)
        pipeline.expire(AUDIT, retention_seconds)
        await pipeline.execute()


async def read(redis: Any, limit: int, cursor: str | None, retention_seconds: int) -> AuditPage:
    """Returns a page, newest first; ``cursor`` is that of the previous page."""
    newest = f"({cursor}" if cursor else "+"
    found = await redis.xrevrange(AUDIT, newest, _oldest(retention_seconds), count=limit + 1)
    items = [AuditEntry(id=id, **AuditRecord.model_validate_json(fields["e"]).model_dump()) for id, fields in found]
    return AuditPage(items=items[:limit], next_cursor=items[limit - 1].id if len(items) > limit else None)


def _oldest(retention_seconds: int) -> str:
    return str(max(0, int((now().timestamp() - retention_seconds) * 1000)))
