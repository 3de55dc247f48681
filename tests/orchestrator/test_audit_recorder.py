"""Refusals of one source and kind: the first is recorded at once, the others of its minute as one entry."""

from __future__ import annotations

from typing import Any

import pytest

from deputize.orchestrator import audit_recorder
from deputize.orchestrator.access_tokens import NOTE, RequestNote
from deputize.orchestrator.audit_log import AuditRecord
from deputize.orchestrator.audit_recorder import AuditRecorder
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


def scope(
    client: str = "192.0.2.7", method: str = "GET", route: str | None = "/v1/tools", token: str | None = None
) -> dict[str, Any]:
    note = RequestNote(method, "req-1", route=route, token=token)
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
    many = audit_recorder.MOST_KINDS
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


@pytest.mark.parametrize("status", [404, 409, 413, 415, 422])
@pytest.mark.parametrize("tool", [None, "cancel"])
async def test_what_changed_nothing_is_counted_as_refusals_are(status: int, tool: str | None) -> None:
    log = Log()
    recorder = AuditRecorder(log.write, LONG)
    for _ in range(1000):
        await send(recorder, scope(method="POST", route="/v1/delegations", token="ci"), status, tool)
    assert log.lines == [("192.0.2.7", status, 1)]
    await recorder.close()
    assert log.lines == [("192.0.2.7", status, 1), ("192.0.2.7", status, 999)]
    assert {each.changed_nothing for each in log.records} == {True}


@pytest.mark.parametrize("tool", [None, "delegate_start"])
async def test_of_very_many_changes_of_one_token_none_is_missing_in_few_entries(tool: str | None) -> None:
    log = Log()
    recorder = AuditRecorder(log.write, LONG)
    sent = [f"dlg_{number}" for number in range(5000)]
    for id in sent:
        await send(recorder, scope(method="POST", route="/v1/delegations", token="ci"), 202, tool, id)
    await send(recorder, scope(method="POST", route="/v1/delegations", token="other"), 202, tool)
    assert [each.token for each in log.records if each.count == 1].count("other") == 1
    await recorder.close()
    mine = [each for each in log.records if each.token == "ci"]
    assert sorted(id for each in mine for id in each.delegation_ids) == sorted(sent)
    assert (sum(each.count for each in mine), len(mine)) == (5000, audit_recorder.MOST_OF_CALLER + 5)


async def test_one_token_has_few_entries_however_its_requests_differ() -> None:
    log = Log()
    recorder = AuditRecorder(log.write, LONG)
    for number in range(3000):
        one = scope(f"2001:db8::{number:x}", "POST", f"/v1/{number % 7}", token="ci")
        await recorder.response(one, 400 + number % 5)
    await recorder.close()
    assert len(log.records) <= audit_recorder.MOST_OF_CALLER + 2 * 5
    assert sum(each.count for each in log.records) == 3000


async def send(recorder: AuditRecorder, scope: dict[str, Any], status: int, tool: str | None, *ids: str) -> None:
    if tool:
        await recorder.call(scope, tool, ids, status)
    else:
        scope[NOTE].ids += ids
        await recorder.response(scope, status)
