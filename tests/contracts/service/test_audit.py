"""The audit log: the same for the service and the fake one. What bounds it only the real one has."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

from deputize.orchestrator import audit_log
from deputize.orchestrator.audit_log import CURSOR, AuditRecord
from deputize.orchestrator.delegations import Delegations
from deputize.shared.connection import connect
from deputize.shared.ids import new_id
from deputize.shared.runs.keys import AUDIT, REFUSED
from deputize.shared.wire import now


def record(number: int, **fields: Any) -> AuditRecord:
    given: dict[str, Any] = {"token": "ci", "client": "192.0.2.7", "method": "POST", "route": "/v1/delegations"}
    return AuditRecord(**given | {"at": now(), "status": 202, "request_id": f"req-{number}"} | fields)


async def test_an_entry_is_listed_as_it_was_recorded(service: Delegations) -> None:
    assert (await service.audit()).items == []
    whole = record(1, tool="delegate", delegation_ids=[new_id(), new_id()])
    await service.record(whole)
    page = await service.audit()
    (entry,) = page.items
    assert (page.next_cursor, bool(CURSOR.fullmatch(entry.id))) == (None, True)
    assert entry.to_dict() == {"id": entry.id, **whole.to_dict()}


async def test_pages_are_newest_first_without_gaps(service: Delegations) -> None:
    for number in range(7):
        await service.record(record(number))
    seen: list[str] = []
    cursor, sizes = None, []
    while True:
        page = await service.audit(3, cursor)
        seen += [each.request_id for each in page.items]
        sizes.append(len(page.items))
        if (cursor := page.next_cursor) is None:
            break
    assert (seen, sizes) == ([f"req-{number}" for number in reversed(range(7))], [3, 3, 1])
    assert (await service.audit(7)).next_cursor is None


async def test_it_keeps_no_more_than_its_most(redis_url: str) -> None:
    async with connect(redis_url) as redis:
        await _fill(redis, audit_log.MAX_ENTRIES)
        await audit_log.write(redis, record(1), 60)
        assert await redis.xlen(AUDIT) == audit_log.MAX_ENTRIES


async def _fill(redis: Redis, many: int, key: str = AUDIT) -> None:
    """As many entries as there may be, in one step, all of this moment."""
    at = int(now().timestamp() * 1000)
    script = "for n = 1, ARGV[2] do redis.call('XADD', KEYS[1], ARGV[1] .. '-' .. n, 'e', '{}') end"
    await redis.eval(script, 1, key, str(at), str(many))


async def test_refusals_displace_nothing_that_changed_something(redis_url: str) -> None:
    async with connect(redis_url) as redis:
        await audit_log.write(redis, record(1), 60)
        await _fill(redis, audit_log.MAX_REFUSALS, REFUSED)
        for number in range(3):
            await audit_log.write(redis, record(number + 2, status=401), 60)
        assert (await redis.xlen(AUDIT), await redis.xlen(REFUSED)) == (1, audit_log.MAX_REFUSALS)
        await redis.delete(REFUSED)
        await audit_log.write(redis, record(9, status=403), 60)
        page = await audit_log.read(redis, 50, None, 60)
    assert [each.request_id for each in page.items] == ["req-9", "req-1"]


async def test_no_page_ends_between_entries_of_the_same_id(redis_url: str) -> None:
    async with connect(redis_url) as redis:
        at = int(now().timestamp() * 1000)
        for key, number in ((AUDIT, 1), (AUDIT, 2), (AUDIT, 3), (REFUSED, 2), (REFUSED, 3)):
            await redis.xadd(key, {"e": record(number).to_json()}, id=f"{at}-{number}")
            await redis.expire(key, 60)
        seen: list[str] = []
        page = await audit_log.read(redis, 1, None, 60)
        seen += [each.request_id for each in page.items]
        while page.next_cursor:
            page = await audit_log.read(redis, 1, page.next_cursor, 60)
            seen += [each.request_id for each in page.items]
    assert seen == ["req-3", "req-3", "req-2", "req-2", "req-1"]


async def test_it_keeps_nothing_beyond_the_retention(redis_url: str) -> None:
    async with connect(redis_url) as redis:
        old = int((now().timestamp() - 61) * 1000)
        await redis.xadd(AUDIT, {"e": record(1).to_json()}, id=f"{old}-0")
        assert (await audit_log.read(redis, 50, None, 60)).items == [], "what is too old is not listed"
        assert len((await audit_log.read(redis, 50, None, 120)).items) == 1
        await audit_log.write(redis, record(2), 60)
        assert [each.request_id for each in (await audit_log.read(redis, 50, None, 120)).items] == ["req-2"]
        assert 0 < await redis.ttl(AUDIT) <= 60
