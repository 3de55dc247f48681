"""The audit log of the fake service, in a list."""

from __future__ import annotations

from deputize.orchestrator.audit_log import AuditEntry, AuditPage, AuditRecord
from deputize.shared.errors import Unavailable


class FakeAuditLog:
    def __init__(self) -> None:
        self.log: list[AuditEntry] = []
        """Oldest first."""
        self.away: Exception | None = None
        """What the next verbs raise."""

    async def record(self, record: AuditRecord) -> None:
        if isinstance(self.away, Unavailable):  # all else is the fault of the verb that a test lets raise it
            raise self.away
        self.log.append(AuditEntry(id=f"{len(self.log) + 1}-0", **record.model_dump()))

    async def audit(self, limit: int = 50, cursor: str | None = None) -> AuditPage:
        self.check()
        place = len(self.log) if cursor is None else int(cursor.split("-")[0]) - 1
        items = self.log[:place][::-1][:limit]
        return AuditPage(items=items, next_cursor=items[-1].id if place > limit else None)

    def check(self) -> None:
        if self.away:
            raise self.away
