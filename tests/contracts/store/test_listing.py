"""Lists with filters and reports of cost are read from what is filed, and equal what reading every record finds."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from deputize.shared.connection import Pipe, connect
from deputize.shared.delegation import Status, Usage
from deputize.shared.runs.cost import cost_report
from deputize.shared.runs.disk import disk_usage, prune
from deputize.shared.runs.keys import BILLS, INDEX, LEASES, filed_key, keys_of, record_key
from deputize.shared.runs.record import MODEL
from deputize.shared.runs.record_lists import RecordLists, matches
from deputize.shared.runs.store import WRITING, RunStore
from deputize.shared.status_counts import StatusCounts
from deputize.worker.core.emit import RunUpdate
from tests.contracts.store.records import LEASE, accepted, write

ENDS = Status.SUCCEEDED, Status.FAILED, Status.CANCELLED
SESSIONS = None, "", "s", "t"
LABELS: list[dict[str, str]] = [{}, {"a": "1"}, {"a": "2"}, {"a": "1", "b": 'x:"y"\né/'}]
SPENT = Usage(
    input_tokens=1,
    output_tokens=2,
    cache_read_tokens=3,
    cache_write_tokens=4,
    cache_write_1h_tokens=5,
    cost_usd=0.1 + 0.2,
    cache_saved_usd=-1e-07,
)


async def end(store: RunStore, pipe: Pipe, id: str, status: Status = Status.SUCCEEDED, usage: Usage = SPENT) -> None:
    """Claims it and ends it at once, as a worker does."""
    claim = await store.claim(id, "token", "worker-1", LEASE)
    assert claim is not None
    fields = {"status": status.value, "finished": "2026-11-25T00:00:00+00:00", "spent": usage.to_json()}
    assert await write(pipe, claim, RunUpdate(fields=fields, retention=60))


async def listed(store: RunStore, limit: int = 500, **filters: Any) -> list[str]:
    """The ids of all pages together."""
    wanted, cursor, ids = {"status": None, "session": None, "labels": {}} | filters, None, list[str]()
    while True:
        page = await RecordLists(store).list(**wanted, limit=limit, cursor=cursor)
        ids += [item.id for item in page.items]
        if (cursor := page.next_cursor) is None:
            return ids


class History:
    """A random history of delegations, and what they cost and which match by reading every record."""

    def __init__(self, store: RunStore, pipe: Pipe, seed: int) -> None:
        self.store, self.pipe, self.random = store, pipe, random.Random(seed)
        self.ids: list[str] = []

    async def step(self) -> None:
        steps = (self.accept, self.accept, self.accept, self.claim, self.end, self.end, self.cancel, self.expire)
        await self.random.choice((*steps, self.prune))()

    async def accept(self) -> None:
        pick = self.random.choice
        self.ids.append(
            await accepted(self.store, session_id=pick(SESSIONS), labels=pick(LABELS), model=pick([None, "m"]))
        )

    async def claim(self) -> None:
        if id := await self._one_that_is("queued"):
            await self.store.claim(id, "token", "worker-1", LEASE)

    async def end(self) -> None:
        if id := await self._one_that_is("queued"):
            await end(self.store, self.pipe, id, self.random.choice(ENDS))

    async def cancel(self) -> None:
        if id := await self._one_that_is("queued"):
            await self.store.cancel(id)

    async def expire(self) -> None:
        if id := await self._one_that_is("succeeded"):
            await expire(self.store.redis, id)

    async def prune(self) -> None:
        if self.random.random() < 0.2:
            await prune(self.store.redis, 0)

    async def _one_that_is(self, status: str) -> str | None:
        found = [id for id in self.ids if await self.store.redis.hget(record_key(id), "status") == status]
        return self.random.choice(found) if found else None

    async def matching(self, status: Status | None, session: str | None, labels: dict[str, str]) -> list[str]:
        found = await self.store.many(sorted(self.ids, reverse=True))
        return [each.id for each in found if matches(each, status, session, labels)]

    async def spent(self) -> tuple[int, float]:
        """How many records exist, and the sum of what they name."""
        records = [await self.store.redis.hmget(record_key(id), ["status", "spent"]) for id in self.ids]
        sums = [json.loads(spent)["costUsd"] for _, spent in records if spent]
        return sum(status is not None for status, _ in records), sum(sums)


async def expire(redis: Any, id: str) -> None:
    """What time does to a finished delegation: its keys and its bill are over."""
    text = await redis.hget(BILLS, id)
    await redis.delete(*keys_of(id))
    if text:
        await redis.hset(BILLS, id, json.dumps([0, *json.loads(text)[1:]]))


@pytest.mark.parametrize("seed", range(2))
async def test_what_is_filed_returns_what_every_record_would(store: RunStore, pipe: Pipe, seed: int) -> None:
    history = History(store, pipe, seed)
    for round in range(60):
        await history.step()
        if round % 6:
            continue
        filters = [
            (None, None, {"a": "1"}),
            (None, "s", {}),
            (None, "", {}),
            *((status, None, {}) for status in Status),
        ]
        pick = history.random.choice
        filters += [(pick([None, *Status]), pick(SESSIONS), pick(LABELS)) for _ in range(6)]
        for status, session, labels in filters:
            found = await listed(store, pick([1, 2, 500]), status=status, session=session, labels=labels)
            assert found == await history.matching(status, session, labels), (status, session, labels)
        total = (await cost_report(store.redis, "day", None)).total
        many, cost = await history.spent()
        assert (total.delegations, total.usage.cost_usd) == (many, pytest.approx(cost))


async def test_a_page_neither_repeats_nor_misses_what_ends_meanwhile(store: RunStore, pipe: Pipe) -> None:
    ids = [await accepted(store, labels={"a": "1"}) for _ in range(12)]
    for id in ids[::2]:
        await end(store, pipe, id)
    seen, cursor, waiting = list[str](), None, ids[1::2]
    while True:
        page = await RecordLists(store).list(status=None, session=None, labels={"a": "1"}, limit=2, cursor=cursor)
        seen += [item.id for item in page.items]
        if (cursor := page.next_cursor) is None:
            break
        await end(store, pipe, waiting.pop(0), Status.FAILED)
        await accepted(store, labels={"a": "1"})
    assert seen == ids[::-1]


async def test_what_a_run_spent_is_the_same_before_and_after_its_end(store: RunStore, pipe: Pipe) -> None:
    id = await accepted(store, session_id="s", labels={"a": 'x:"y"\né/'})
    await store.redis.hset(record_key(id), mapping={MODEL: "m/é", "spent": SPENT.to_json()})
    groups = "day", "model", "session", "label"
    before = [await cost_report(store.redis, by, None) for by in groups]
    await end(store, pipe, id)
    assert [await cost_report(store.redis, by, None) for by in groups] == before
    assert before[0].total.usage == SPENT
    assert [report.items[0].key for report in before[1:]] == ["m/é", "s", 'a:x:"y"\né/']


async def test_what_never_ran_cost_nothing_and_is_priced(store: RunStore) -> None:
    await store.cancel(await accepted(store))
    total = (await cost_report(store.redis, "day", None)).total
    assert (total.delegations, total.unpriced, total.usage) == (1, 0, Usage())


async def test_a_report_leaves_out_what_has_expired(store: RunStore, pipe: Pipe) -> None:
    first, second = await accepted(store), await accepted(store)
    await end(store, pipe, first)
    await end(store, pipe, second)
    await expire(store.redis, first)
    assert (await cost_report(store.redis, "day", None)).total.delegations == 1
    assert (await disk_usage(store.redis, 0)).delegations == 0
    assert await store.redis.hkeys(BILLS) == [second]


async def test_a_record_that_is_gone_leaves_the_sets_through_which_it_is_found(store: RunStore, pipe: Pipe) -> None:
    gone, kept = [await accepted(store, session_id="s", labels={"a": "1"}) for _ in range(2)]
    for id in (gone, kept):
        await end(store, pipe, id)
    await expire(store.redis, gone)
    sets = [filed_key(name) for name in ("succeeded", "session:s", "label:a:1")]
    assert await listed(store, status=Status.SUCCEEDED, session="s", labels={"a": "1"}) == [kept]
    assert [await store.redis.zrange(key, 0, -1) for key in (INDEX, *sets)] == [[kept]] * 4
    assert await store.redis.hkeys(BILLS) == [kept]


async def test_the_counts_are_those_of_the_records_that_exist(store: RunStore, pipe: Pipe) -> None:
    ids = [await accepted(store) for _ in range(6)]
    for id, status in zip(ids, [Status.SUCCEEDED, Status.SUCCEEDED, Status.FAILED, Status.CANCELLED], strict=False):
        await end(store, pipe, id, status)
    assert await store.claim(ids[4], "token", "worker-1", LEASE)
    assert await RecordLists(store).counts() == StatusCounts(queued=1, running=1, succeeded=2, failed=1, cancelled=1)
    await expire(store.redis, ids[0])
    await expire(store.redis, ids[2])
    assert await RecordLists(store).counts() == StatusCounts(queued=1, running=1, succeeded=1, cancelled=1)
    assert await store.redis.zrange(filed_key("succeeded"), 0, -1) == [ids[1]]


async def test_what_is_filed_lives_as_long_as_the_last_record_in_it(store: RunStore, pipe: Pipe) -> None:
    id = await accepted(store, session_id="s")
    await end(store, pipe, id)
    keys = [BILLS, filed_key("succeeded"), filed_key("session:s")]
    assert all([59 <= await store.redis.ttl(key) <= 61 for key in keys])
    for key in keys:
        await store.redis.expire(key, 600)
    await end(store, pipe, await accepted(store, session_id="s"))
    assert all([599 <= await store.redis.ttl(key) <= 600 for key in keys])


async def test_each_id_of_the_index_has_a_lease_or_a_bill(store: RunStore, pipe: Pipe) -> None:
    ids = [await accepted(store) for _ in range(4)]
    await store.cancel(ids[0])
    await end(store, pipe, ids[1])
    await store.claim(ids[2], "token", "worker-1", LEASE)
    leased, filed = await store.redis.zrange(LEASES, 0, -1), await store.redis.hkeys(BILLS)
    assert (sorted(leased), sorted(filed)) == (ids[2:], ids[:2])


async def test_the_commands_of_a_list_do_not_grow_with_what_has_ended(redis_url: str) -> None:
    async with connect(redis_url) as redis, Pipe(redis, WRITING) as pipe:
        store = RunStore(redis, 60)
        found = await accepted(store, session_id="s", labels={"a": "1"})
        await end(store, pipe, found, Status.FAILED)

        async def commands(**filters: Any) -> int:
            """Also those that scripts call."""
            before = await redis.info("commandstats")
            assert await listed(store, **filters) == [found]
            after = await redis.info("commandstats")
            return sum(each["calls"] for each in after.values()) - sum(each["calls"] for each in before.values())

        filters: list[dict[str, Any]] = [{"status": Status.FAILED}, {"session": "s"}, {"labels": {"a": "1"}}]
        filters.append({"status": Status.FAILED, "labels": {"a": "1"}})
        await listed(store, status=Status.FAILED)  # loads the script
        few = [await commands(**each) for each in filters]
        for _ in range(60):
            await end(store, pipe, await accepted(store, session_id="t", labels={"a": "2"}))
        assert [await commands(**each) for each in filters] == few
