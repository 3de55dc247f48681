"""What is accepted, listed and pruned: the same questions to a real Redis and to fakeredis."""

from __future__ import annotations

import asyncio
import time

import pytest

from deputize.shared.bus import Bus
from deputize.shared.connection import Pipe
from deputize.shared.delegation import Status
from deputize.shared.errors import Fenced, KeyReused, NotFound
from deputize.shared.ids import new_id
from deputize.shared.limits import Limits
from deputize.shared.message import Message, MessageMode
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.disk import PAGE, PRUNED_SECONDS, PRUNING, prune, pruned
from deputize.shared.runs.keys import (
    INDEX,
    PRUNE,
    PRUNED,
    children_key,
    dependants_key,
    grants_key,
    keys_of,
    webhooks_key,
)
from deputize.shared.runs.messages import send
from deputize.shared.runs.record_lists import RecordLists
from deputize.shared.runs.store import RunStore
from deputize.worker.core.emit import RunUpdate
from tests.contracts.store.records import LEASE, accepted, claimed, ending, turn, write


async def test_an_accepted_delegation_is_queued_with_its_first_event(store: RunStore) -> None:
    id = await accepted(store, context="background")
    found = await store.get(id)
    assert (found.status, found.request.context, found.attempt) == (Status.QUEUED, "background", 0)
    assert [(event.seq, event.event.type) for event in await store.events(id)] == [(1, "run_queued")]


async def test_accepting_the_same_id_twice_changes_nothing(store: RunStore) -> None:
    request = DelegationRequest(task="do it")
    new = [(new_id(), request, request.limits)]
    assert await store.accept(new, 30) == await store.accept(new, 30)
    assert len(await store.events(new[0][0])) == 1


async def test_a_batch_with_a_reused_key_accepts_nothing(store: RunStore) -> None:
    await accepted(store, idempotency_key="k")
    good, bad = DelegationRequest(task="good"), DelegationRequest(task="other", idempotency_key="k")
    with pytest.raises(KeyReused):
        await store.accept([(new_id(), good, Limits()), (new_id(), bad, Limits())], 30)
    page = await RecordLists(store).list(status=None, session=None, labels={}, limit=10, cursor=None)
    assert [item.request.task for item in page.items] == ["do it"]


async def test_the_same_key_and_body_give_the_first_delegation(store: RunStore) -> None:
    assert await accepted(store, idempotency_key="k") == await accepted(store, idempotency_key="k")


async def test_what_finished_is_pruned_with_every_key_and_nothing_else_is_touched(
    store: RunStore, pipe: Pipe, bus: Bus
) -> None:
    queued, running, done = await accepted(store), await claimed(store), await claimed(store)
    kept = {"artifacts": {"a": "1"}, "permissions": {"prm_1": "{}"}, "path": done.id}
    await write(pipe, done, RunUpdate(history=['{"role":"user"}'], ledger={"call": "asked"}, **kept))
    await store.redis.hset(grants_key(done.id), "grant", "{}")
    await store.redis.hset(webhooks_key(done.id), "2", "{}")
    await send(store.redis, done.id, Message.new("hello", MessageMode.STEER), 60)
    await accepted(store, parent_id=done.id)
    await write(pipe, done, ending(done, 2), 2)
    kept_keys = {*keys_of(done.id)} - {dependants_key(done.id)}  # which goes with the end
    assert await store.redis.exists(*keys_of(done.id)) == len(kept_keys)
    async with bus.listen(PRUNE) as asked:
        assert (await prune(store.redis, 3600)).removed == 0
        assert await store.redis.exists(*keys_of(done.id)) == len(kept_keys)
        assert [(await prune(store.redis, 0)).removed for _ in range(2)] == [1, 0]
        heard = [await asyncio.wait_for(asked.get(), 30) for _ in range(4)]
    assert [message for message in heard if message] == ["3600", f"0 {done.id}", "0", "0"]
    assert await store.redis.exists(*keys_of(done.id)) == 0
    assert await store.redis.zscore(INDEX, done.id) is None
    assert [(await store.get(id)).status for id in (queued, running.id)] == [Status.QUEUED, Status.RUNNING]
    assert await write(pipe, running, RunUpdate(events=[turn(running, 2)])) == 1


async def test_pruning_goes_on_over_pages_and_drops_entries_without_a_record(store: RunStore) -> None:
    ids = [await accepted(store) for _ in range(PAGE + 1)]
    for id in ids:
        await store.cancel(id)
    await store.redis.delete(*keys_of(ids[0]))
    assert (await prune(store.redis, 0)).removed == PAGE
    assert await store.redis.zcard(INDEX) == 0


async def test_what_was_pruned_is_listed_for_a_time_and_no_more_than_fit(store: RunStore) -> None:
    ids = [await accepted(store) for _ in range(3)]
    for id in ids:
        await store.cancel(id)
    await store.redis.zadd(PRUNED, {"dlg_old": time.time() - PRUNED_SECONDS - 60, "dlg_recent": time.time() - 60})
    await prune(store.redis, 0)
    assert await pruned(store.redis, [*ids, "dlg_old", "dlg_recent", "dlg_other"]) == {*ids, "dlg_recent"}
    assert 0 < await store.redis.ttl(PRUNED) <= PRUNED_SECONDS
    await PRUNING.run(store.redis, [PRUNED], {"ids": ["dlg_z"], "seconds": PRUNED_SECONDS, "most": 2})
    listed = await store.redis.zrange(PRUNED, 0, -1)
    assert (len(listed), listed[-1]) == (2, "dlg_z")


async def test_the_key_of_a_pruned_delegation_does_not_start_it_again(store: RunStore) -> None:
    id = await accepted(store, idempotency_key="k")
    await store.cancel(id)
    await prune(store.redis, 0)
    with pytest.raises(KeyReused, match="whose record is gone"):
        await accepted(store, idempotency_key="k")


async def test_a_child_of_an_ended_or_forgotten_parent_leaves_no_key_without_an_end(store: RunStore) -> None:
    ended, gone = await accepted(store), new_id()
    await store.cancel(ended)
    for parent in (ended, gone):
        await accepted(store, parent_id=parent)
    assert 0 < await store.redis.ttl(children_key(ended)) <= 60
    assert not await store.redis.exists(children_key(gone))


async def test_how_deep_a_delegation_is_nested_is_counted_where_it_is_accepted(store: RunStore) -> None:
    depths, parent = list[int](), None
    for _ in range(4):
        parent = await accepted(store, parent_id=parent)
        claim = await store.claim(parent, "token", "worker-1", LEASE)
        assert claim is not None
        depths.append(claim.depth)
    assert depths == [0, 1, 2, 3]


async def test_only_the_present_attempt_of_a_run_can_hand_over_in_its_name(store: RunStore) -> None:
    parent = await claimed(store)
    request = DelegationRequest(task="help", parent_id=parent.id)
    with pytest.raises(Fenced):
        await store.accept([(new_id(), request, request.limits)], 30, fence="1:another")
    assert not await store.redis.exists(children_key(parent.id))
    (child,) = await store.accept([(new_id(), request, request.limits)], 30, fence=parent.fence)
    assert await store.redis.smembers(children_key(parent.id)) == {child.id}


async def test_an_unknown_id_is_reported(store: RunStore) -> None:
    for asked in (store.get("dlg_x"), store.events("dlg_x"), store.patch("dlg_x"), store.cancel("dlg_x")):
        with pytest.raises(NotFound, match="dlg_x"):
            await asked


async def test_listing_is_newest_first_filtered_and_paged(store: RunStore) -> None:
    ids = [await accepted(store, session_id="s", labels={"n": str(n % 2)}) for n in range(5)]
    await accepted(store, session_id="other")
    page = await RecordLists(store).list(status=Status.QUEUED, session="s", labels={"n": "0"}, limit=2, cursor=None)
    assert [item.id for item in page.items] == [ids[4], ids[2]]
    rest = await RecordLists(store).list(status=None, session="s", labels={"n": "0"}, limit=2, cursor=page.next_cursor)
    assert ([item.id for item in rest.items], rest.next_cursor) == ([ids[0]], None)
