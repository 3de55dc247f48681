"""Refusals of one source and kind: the first is recorded at once, the others of its minute as one entry."""

from __future__ import annotations

from typing import Any

from deputize.orchestrator import audit_recorder
from deputize.orchestrator.audit_log import AuditRecord
from deputize.orchestrator.audit_recorder import AuditRecorder
from deputize.orchestrator.caller import NOTE, RequestNote
from tests.waiting import until

LONG = 600.0


class Log:
    def __init__(self) -> None:
        self.records: list[AuditRecord] = []

    async def write(self, record: AuditRecord) -> None:
        self.records.append(record)

    @property
    def lines(self) -> list[tuple[str | None, int, int]]:
        return [(each.client, each.status, each.count) for each in self.records]


def scope(client: str = "192.0.2.7", method: str = "GET", route: str | None = "/v1/tools") -> dict[str, Any]:
    note = RequestNote(method, "req-1", route=route)
    return {"type": "http", NOTE: note, "client": (client, 1), "path": "/x", "method": method}


async def test_a_flood_of_refusals_is_two_entries() -> None:
    log = Log()
    recorder = AuditRecorder(log.write, LONG)
    for _ in range(1000):
        await recorder.response(scope(), 401)
    assert log.lines == [("192.0.2.7", 401, 1)]
    await recorder.close()
    assert log.lines == [("192.0.2.7", 401, 1), ("192.0.2.7", 401, 999)]


async def test_what_was_counted_is_written_when_its_minute_ends() -> None:
    log = Log()
    recorder = AuditRecorder(log.write, 0.05)
    for _ in range(3):
        await recorder.response(scope(), 401)
    await until(lambda: len(log.records) == 2)
    assert log.lines[1] == ("192.0.2.7", 401, 2)
    await recorder.response(scope(), 401)
    assert log.lines[2] == ("192.0.2.7", 401, 1)
    await recorder.close()
    assert len(log.records) == 3


async def test_each_source_and_kind_has_its_own_entry() -> None:
    log = Log()
    recorder = AuditRecorder(log.write, LONG)
    for one in (scope(), scope("192.0.2.8"), scope(method="POST"), scope(route="/v1/workers"), scope(route=None)):
        await recorder.response(one, 401)
    await recorder.response(scope(), 403)
    assert len(log.records) == 6
    await recorder.close()


async def test_so_many_sources_that_they_cannot_be_counted_share_entries() -> None:
    log = Log()
    recorder = AuditRecorder(log.write, LONG)
    many = audit_recorder.MOST_SOURCES
    for number in range(many + 50):
        await recorder.response(scope(f"2001:db8::{number:x}"), 401)
    assert len(log.records) == many + 1
    await recorder.close()
    assert log.lines[-1] == (None, 401, 49)


async def test_a_change_is_recorded_each_time() -> None:
    log = Log()
    recorder = AuditRecorder(log.write, LONG)
    for _ in range(3):
        await recorder.response(scope(method="POST", route="/v1/delegations"), 202)
    assert [each.count for each in log.records] == [1, 1, 1]
