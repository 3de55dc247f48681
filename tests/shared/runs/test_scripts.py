"""What the store's scripts leave in Redis, field by field: what every other part of a fleet relies on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeServer

from deputize.shared.bus import Bus
from deputize.shared.connection import Pipe
from deputize.shared.errors import GoesAlone, KeyReused
from deputize.shared.events import Envelope
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.disk import PAGE
from deputize.shared.runs.keys import (
    CANCEL,
    EVENTS,
    INDEX,
    LEASES,
    PRESENCE,
    channel,
    events_key,
    history_key,
    keys_of,
    ledger_key,
    record_key,
)
from deputize.shared.runs.record import Claim
from deputize.shared.runs.record_lists import RecordLists
from deputize.shared.runs.store import (
    CANCELLING,
    IDEMPOTENCY_SECONDS,
    MOST_LOST_STARTS,
    MOST_STARTS,
    RECORD,
    RELEASE,
    STALLED,
    WRITING,
    RunStore,
)
from deputize.worker.core.emit import RunUpdate
from deputize.worker.redis_record import script_call

SECONDS = 1000.0


@pytest.fixture
async def clients() -> AsyncIterator[list[Any]]:
    server = FakeServer()
    made: list[Any] = [FakeAsyncRedis(server=server, decode_responses=True) for _ in range(3)]
    yield made
    for client in made:
        await client.aclose()


@pytest.fixture
def store(clients: list[Any]) -> RunStore:
    return RunStore(clients[0], retention_seconds=60)


async def accepted(store: RunStore, id: str = "", **fields: Any) -> str:
    request = DelegationRequest(task="do it", **fields)
    return (await store.accept([(id or new_id(), request, request.limits)], SECONDS))[0].id


async def claimed(store: RunStore, owner: str = "") -> Claim:
    claim = await store.claim(await accepted(store), "token", "worker-1", SECONDS, owner)
    assert claim is not None
    return claim


async def due_in(store: RunStore, id: str) -> float:
    """Seconds until a delegation's deadline, by the server's clock."""
    seconds, micros = await store.redis.time()
    return await store.redis.zscore(LEASES, id) / 1000 - seconds - micros / 1e6


async def heard(bus: Bus, on: str, doing: Any, number: int) -> list[Envelope]:
    async with bus.listen(on) as listener, asyncio.timeout(30):
        await doing
        found: list[Envelope] = []
        while len(found) < number:
            if message := await listener.get():
                found.append(Envelope.from_json(message))
        return found


async def test_an_accepted_delegation_has_its_deadline_and_its_number(store: RunStore) -> None:
    id = await accepted(store)
    assert await due_in(store, id) == pytest.approx(SECONDS, abs=60)
    assert await store.redis.hmget(record_key(id), ["status", "attempt", "seq", "fence"]) == ["queued", "0", "1", ""]
    assert await store.redis.zscore(INDEX, id) == 0
    assert await store.reap(30) == []


async def test_an_idempotency_key_is_kept_for_a_day(store: RunStore) -> None:
    await accepted(store, idempotency_key="k")
    kept = await store.redis.ttl("deputize:idempotency:k")
    assert 0 < kept <= IDEMPOTENCY_SECONDS == 86_400


async def test_the_answer_to_a_repeated_key_is_marked_as_a_replay(store: RunStore) -> None:
    request = DelegationRequest(task="do it", idempotency_key="k")
    first, again = [(await store.accept([(new_id(), request, request.limits)], SECONDS))[0] for _ in range(2)]
    assert (first.replayed, again.replayed, again.id) == (False, True, first.id)


async def test_a_page_has_a_cursor_only_where_another_one_follows(store: RunStore) -> None:
    request = DelegationRequest(task="do it")
    new = [(new_id(), request, request.limits) for _ in range(PAGE + 1)]
    await store.accept(new, SECONDS)
    first = await RecordLists(store).list(status=None, session=None, labels={}, limit=PAGE, cursor=None)
    assert (len(first.items), first.next_cursor) == (PAGE, first.items[-1].id)
    last = await RecordLists(store).list(status=None, session=None, labels={}, limit=1, cursor=first.next_cursor)
    assert (len(last.items), last.next_cursor) == (1, None)


async def test_listing_forgets_what_has_no_record_any_more(store: RunStore) -> None:
    gone, kept = await accepted(store), await accepted(store)
    await store.redis.delete(record_key(gone))
    page = await RecordLists(store).list(status=None, session=None, labels={}, limit=10, cursor=None)
    assert [item.id for item in page.items] == [kept]
    assert await store.redis.zrange(INDEX, 0, -1) == [kept]


@pytest.mark.parametrize("of_all", [True, False])
async def test_who_listens_hears_the_first_event_and_the_last(
    store: RunStore, clients: list[Any], *, of_all: bool
) -> None:
    id = new_id()

    async def both() -> None:
        await accepted(store, id)
        await store.cancel(id)

    async with Bus(clients[2]) as bus:
        found = await heard(bus, EVENTS if of_all else channel(id), both(), 2)
    assert [(each.delegation_id, each.seq, each.event.type) for each in found] == [
        (id, 1, "run_queued"),
        (id, 2, "run_finished"),
    ]


async def test_a_cancelled_delegation_is_out_of_the_way_and_its_keys_end(store: RunStore) -> None:
    id = await accepted(store)
    assert await store.cancel(id) == "cancelled"
    fields = await store.redis.hmget(record_key(id), ["status", "seq", "cancel", "finished"])
    assert fields[:3] == ["cancelled", "2", "1"]
    assert fields[3]
    assert await store.redis.zscore(LEASES, id) is None
    assert all([0 < await store.redis.ttl(key) <= 60 for key in (record_key(id), events_key(id))])
    assert (await store.get(id)).finished_at is not None


class Raced:
    """A client whose record moves on right after it was read for the first time."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._redis, name)

    async def hmget(self, key: str, fields: list[str]) -> Any:
        found = await self._redis.hmget(key, fields)
        self.read += 1
        if self.read == 1:
            await self._redis.hset(key, "seq", 2)
        return found


async def test_who_cancels_tries_again_where_the_record_moved_on_meanwhile(store: RunStore, clients: list[Any]) -> None:
    id, raced = await accepted(store), Raced(clients[0])
    store.redis = raced
    assert (await store.cancel(id), raced.read) == ("cancelled", 2)
    assert [event.seq for event in await store.events(id)] == [1, 3]


async def test_a_record_that_moved_on_meanwhile_is_not_ended_by_what_was_written_for_it_before(store: RunStore) -> None:
    id = await accepted(store)
    stale = {"id": id, "channel": EVENTS, "cancel_channel": CANCEL, "seq": 7, "retention_seconds": 60}
    stale |= {"event": "an event", "result": "a result", "now": "now"}
    assert await CANCELLING.run(store.redis, [LEASES, *keys_of(id)], stale) == "again"
    assert ((await store.get(id)).status, len(await store.events(id))) == ("queued", 1)


@pytest.mark.parametrize("status", ["running", "waiting"])
async def test_a_delegation_at_work_is_asked_to_end_and_not_ended(store: RunStore, status: str) -> None:
    claim = await claimed(store)
    await store.redis.hset(record_key(claim.id), "status", status)
    assert await store.cancel(claim.id) == "asked"
    assert await store.redis.hmget(record_key(claim.id), ["status", "cancel", "seq"]) == [status, "1", "1"]
    assert await due_in(store, claim.id) == pytest.approx(SECONDS, abs=60)


async def test_a_worker_that_is_gone_loses_its_own_leases_and_no_others(store: RunStore) -> None:
    mine, waits, others, ended = [await claimed(store, owner) for owner in ("me", "me", "another", "me")]
    await store.redis.hset(record_key(waits.id), "status", "waiting")
    await store.redis.hset(record_key(ended.id), "status", "succeeded")
    queued = await accepted(store)
    assert await store.lapse("me") == 2
    assert {one.id: one.kind for one in await store.reap(SECONDS)} == {mine.id: "lapsed", waits.id: "lapsed"}
    for id in (others.id, queued, ended.id):
        assert await due_in(store, id) == pytest.approx(SECONDS, abs=60)


async def test_what_is_reaped_is_named_with_all_that_a_ticket_needs(store: RunStore) -> None:
    lapsed = await claimed(store)
    waits = await accepted(store, priority=9)
    over = await claimed(store)
    await store.redis.hset(record_key(over.id), "status", "succeeded")
    await store.redis.zadd(LEASES, {lapsed.id: 1, waits: 2, over.id: 3, "gone": 4})
    found = await store.reap(SECONDS, at_most=1)
    assert len(found) == 1
    found += await store.reap(SECONDS)
    assert [(one.id, one.kind, one.attempt, one.title, one.priority) for one in found] == [
        (lapsed.id, "lapsed", 1, "do it", 5),
        (waits, "unclaimed", 0, "do it", 9),
    ]
    wanted = ["status", "fence", "worker", "lost", "ended"]
    assert await store.redis.hmget(record_key(lapsed.id), wanted) == ["queued", "", "", "1", "lost"]
    assert await store.redis.hmget(record_key(waits), wanted) == ["queued", "", "", None, None]
    assert await store.redis.zrange(LEASES, 0, -1) == sorted([lapsed.id, waits])
    assert [await due_in(store, id) for id in (lapsed.id, waits)] == pytest.approx([SECONDS] * 2, abs=60)


async def test_a_handed_over_delegation_is_unclaimed_and_due_at_the_stated_time(
    store: RunStore, clients: list[Any]
) -> None:
    claim = await claimed(store)
    async with Pipe(clients[1], WRITING) as pipe:
        keys = [record_key(claim.id), LEASES]
        assert await pipe.script(RELEASE, keys, {"id": claim.id, "fence": "1:another", "claim_ms": 0}) == "fenced"
        assert await due_in(store, claim.id) == pytest.approx(SECONDS, abs=60)
        ours = {"id": claim.id, "fence": claim.fence, "claim_ms": 5_000_000}
        assert await pipe.script(RELEASE, keys, ours) == "released"
    fields = await store.redis.hmget(record_key(claim.id), ["status", "fence", "worker", "ended", "lost"])
    assert fields == ["queued", "", "", "handed_over", "0"]
    assert await due_in(store, claim.id) == pytest.approx(5000, abs=60)


async def test_a_standstill_is_marked_by_its_own_standby_and_due_when_its_worker_is_gone(
    store: RunStore,
) -> None:
    claim = await claimed(store)
    keys, ours = [record_key(claim.id), LEASES], {"id": claim.id, "fence": claim.fence, "ends_lease": False}
    assert await STALLED.run(store.redis, keys, ours | {"fence": "1:another", "ends_lease": True}) == "fenced"
    assert await store.redis.hget(record_key(claim.id), "stalled") is None
    assert await STALLED.run(store.redis, keys, ours) == "marked"
    assert await store.redis.hget(record_key(claim.id), "stalled") == "1"
    assert await due_in(store, claim.id) == pytest.approx(SECONDS, abs=60)
    assert await STALLED.run(store.redis, keys, ours | {"ends_lease": True}) == "marked"
    assert await store.redis.zscore(LEASES, claim.id) == 0
    assert await store.redis.hget(record_key(claim.id), "stalls") == "1"


async def test_after_two_standstills_a_run_has_its_own_process_and_no_worker_is_lost(
    store: RunStore,
) -> None:
    id = (await claimed(store)).id
    for stalls in (1, 2, 3):
        fence = await store.redis.hget(record_key(id), "fence")
        await STALLED.run(store.redis, [record_key(id), LEASES], {"id": id, "fence": fence, "ends_lease": True})
        assert [each.id for each in await store.reap(30)] == [id]
        if stalls == 2:
            with pytest.raises(GoesAlone):
                await store.claim(id, "token", "worker-1", SECONDS, start_seconds=30)
        claim = await store.claim(id, "token", "worker-1", SECONDS, start_seconds=None if stalls == 2 else 30)
        assert claim is not None
        assert (claim.attempt, claim.past.stalls, claim.past.lost, claim.past.stalled) == (stalls + 1, stalls, 0, True)


async def test_a_standstill_of_a_worker_of_an_earlier_version_counts_as_a_loss(store: RunStore) -> None:
    id = (await claimed(store)).id
    await store.redis.hset(record_key(id), "stalled", "1")
    await store.redis.zadd(LEASES, {id: 0})
    assert [each.id for each in await store.reap(30)] == [id]
    assert await store.redis.hmget(record_key(id), ["lost", "stalls"]) == ["1", None]


async def test_after_a_retry_a_run_begins_in_a_process_of_its_own(store: RunStore) -> None:
    claim = await claimed(store)
    await store.redis.hset(record_key(claim.id), "stalls", 3)
    again = RunUpdate(events=[(2, "{}")], fields={}, retry_ms=0)
    async with Pipe(store.redis, WRITING) as pipe:
        assert await pipe.script(RECORD, *script_call(again, claim.id, claim.fence)) == "written"
    assert await store.redis.hget(record_key(claim.id), "stalls") == "2"


async def test_a_cancelled_run_needs_no_process_of_its_own_to_end(store: RunStore) -> None:
    id = (await claimed(store)).id
    await store.redis.hset(record_key(id), mapping={"stalls": 2, "status": "queued"})
    await store.cancel(id)
    claim = await store.claim(id, "token", "worker-1", SECONDS, start_seconds=30)
    assert claim is not None
    assert claim.cancelled


async def goes_alone(store: RunStore, id: str, token: str, start_seconds: float, owner: str = "") -> bool:
    """Whether a worker is to start the run's process, and not to drop the ticket."""
    try:
        assert await store.claim(id, token, "worker-1", SECONDS, owner, start_seconds=start_seconds) is None
    except GoesAlone:
        return True
    return False


async def to_go_alone(store: RunStore) -> str:
    id = (await claimed(store)).id
    await store.redis.hset(record_key(id), mapping={"stalls": 2, "status": "queued"})
    return id


async def test_tickets_that_come_while_a_run_gets_its_process_start_no_other_one(store: RunStore) -> None:
    id = await to_go_alone(store)
    assert await goes_alone(store, id, "first", SECONDS)
    assert await goes_alone(store, id, "first", SECONDS), "the answer was lost"
    assert [await goes_alone(store, id, str(ticket), SECONDS) for ticket in range(5)] == [False] * 5
    assert await due_in(store, id) == pytest.approx(SECONDS, abs=60)
    assert await store.redis.hget(record_key(id), "starts") == "1"
    claim = await store.claim(id, "token", "worker-1", SECONDS)
    assert claim is not None
    assert claim.past.starts == 0
    assert await store.redis.hget(record_key(id), "starts") is None


async def test_a_worker_gives_up_a_run_whose_processes_end_before_they_claim_it(
    store: RunStore,
) -> None:
    id = await to_go_alone(store)
    assert [await goes_alone(store, id, str(ticket), 0) for ticket in range(MOST_STARTS)] == [True] * MOST_STARTS
    assert [each.id for each in await store.reap(30)] == [id]
    claim = await store.claim(id, "token", "worker-1", SECONDS, start_seconds=30)
    assert claim is not None
    assert (claim.past.starts, claim.past.stalls, claim.past.lost) == (MOST_STARTS, 2, 0)
    again = RunUpdate(events=[(2, "{}")], fields={}, retry_ms=0)
    async with Pipe(store.redis, WRITING) as pipe:
        assert await pipe.script(RECORD, *script_call(again, claim.id, claim.fence)) == "written"
    assert await goes_alone(store, id, "after a retry", SECONDS)


async def test_processes_that_end_with_their_worker_do_not_count_and_are_bounded_nevertheless(store: RunStore) -> None:
    id = await to_go_alone(store)
    for ticket in range(MOST_LOST_STARTS + MOST_STARTS):
        assert await goes_alone(store, id, str(ticket), 0, f"w#{ticket}")
    claim = await store.claim(id, "token", "worker-1", SECONDS, start_seconds=30)
    assert claim is not None
    assert claim.past.starts == MOST_STARTS


async def test_processes_of_workers_that_are_there_count(store: RunStore) -> None:
    id = await to_go_alone(store)
    await store.redis.zadd(PRESENCE, {"w#1": 1})
    assert await goes_alone(store, id, "lost", 0, "w#0")
    for ticket in range(MOST_STARTS):
        assert await goes_alone(store, id, str(ticket), 0, "w#1")
    claim = await store.claim(id, "token", "worker-1", SECONDS, "w#1", start_seconds=30)
    assert claim is not None
    assert claim.past.starts == MOST_STARTS


@pytest.mark.parametrize(("turns", "stalls"), [(4, 2), (13, 2), (14, 1), (23, 1), (24, 0), (99, 0)], ids=str)
async def test_ten_completed_turns_take_one_standstill_back(store: RunStore, turns: int, stalls: int) -> None:
    claim = await claimed(store)
    id, key = claim.id, record_key(claim.id)
    await store.redis.hset(key, mapping={"checkpoint": '{"turns": 4}', "stalls": 1, "stalled_turn": 4})
    ended = {"id": id, "ends_lease": True}
    await STALLED.run(store.redis, [key, LEASES], ended | {"fence": claim.fence})
    await store.reap(30)
    await store.redis.hset(key, "checkpoint", f'{{"turns": {turns}}}')
    found = await store.claim(id, "token", "worker-1", SECONDS)
    assert found is not None
    assert found.past.stalls == stalls
    await STALLED.run(store.redis, [key, LEASES], ended | {"fence": found.fence})
    assert await store.redis.hmget(key, ["stalls", "stalled_turn"]) == [str(stalls + 1), str(turns)]


@pytest.mark.parametrize(
    ("stalls", "turns", "done", "left"),
    [
        *[(1, 40, 0, 1), (1, 40, 9, 1), (1, 40, 10, 0), (2, 40, 10, 1)],
        *[(5, 41, 0, 2), (5, 41, 10, 1), (2, 50, 0, 1), (1, 60, 0, 0)],
    ],
    ids=str,
)
async def test_a_run_that_is_done_again_counts_its_clean_turns_from_its_new_start(
    store: RunStore, stalls: int, turns: int, done: int, left: int
) -> None:
    claim = await claimed(store)
    key, again = record_key(claim.id), RunUpdate(events=[(2, "{}")], fields={"checkpoint": "{}"}, retry_ms=0)
    stood = {"checkpoint": f'{{"turns": {turns}}}', "stalls": stalls, "stalled_turn": 40}
    await store.redis.hset(key, mapping=stood)
    async with Pipe(store.redis, WRITING) as pipe:
        assert await pipe.script(RECORD, *script_call(again, claim.id, claim.fence)) == "written"
    await store.redis.hset(key, "checkpoint", f'{{"turns": {done}}}')
    found = await store.claim(claim.id, "token", "worker-1", SECONDS)
    assert found is not None
    assert found.past.stalls == left


async def test_a_run_that_is_done_again_keeps_nothing_of_its_failed_try_but_its_report(
    store: RunStore, clients: list[Any]
) -> None:
    claim = await claimed(store)
    begun = RunUpdate(1, history=["{}"], ledger={"call_1_1": "{}"}, fields={"tools": "[]", "lost": "1"})
    again = RunUpdate(2, events=[(2, "{}")], fields={"checkpoint": "{}"}, retry_ms=5_000_000)
    async with Pipe(clients[1], WRITING) as pipe:
        assert await pipe.script(RECORD, *script_call(begun, claim.id, claim.fence)) == "written"
        for _ in range(2):  # its answer was lost
            assert await pipe.script(RECORD, *script_call(again, claim.id, claim.fence)) == "written"
        assert await pipe.script(RECORD, *script_call(begun, claim.id, claim.fence)) == "fenced"
    names = ["status", "fence", "ended", "lost", "retries", "retried_after", "seq", "tools", "checkpoint"]
    fields = await store.redis.hmget(record_key(claim.id), names)
    assert fields == ["queued", "", "retried", "0", "1", "1", "2", None, "{}"]
    assert [await store.redis.exists(key) for key in (history_key(claim.id), ledger_key(claim.id))] == [0, 0]
    assert await due_in(store, claim.id) == pytest.approx(5000, abs=60)
    next_try = await store.claim(claim.id, "token", "worker-2", SECONDS)
    assert next_try is not None
    assert (next_try.past.retries, next_try.is_first, next_try.history, next_try.kept) == (1, True, [], {})
    await store.cancel(claim.id)
    async with Pipe(clients[2], WRITING) as pipe:
        again = replace(again, number=1, events=[(3, "{}")])
        assert await pipe.script(RECORD, *script_call(again, claim.id, next_try.fence)) == "written"
    assert await store.redis.zscore(LEASES, claim.id) == 0, "a cancelled one does not wait for its next try"


async def test_the_same_key_twice_in_one_batch_is_one_delegation(store: RunStore) -> None:
    same = DelegationRequest(task="do it", idempotency_key="k")
    first, second = await store.accept([(new_id(), same, same.limits), (new_id(), same, same.limits)], SECONDS)
    assert (second.id, first.replayed, second.replayed) == (first.id, False, True)
    assert await store.redis.zcard(INDEX) == 1
    other = DelegationRequest(task="something else", idempotency_key="new")
    another = DelegationRequest(task="do it", idempotency_key="new")
    with pytest.raises(KeyReused):
        await store.accept([(new_id(), other, other.limits), (new_id(), another, another.limits)], SECONDS)
    assert await store.redis.zcard(INDEX) == 1
