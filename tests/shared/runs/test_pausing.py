"""What a stack does at its start with the delegations that earlier ones left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis

from deputize.shared.delegation import Status
from deputize.shared.errors import Conflict, NotFound
from deputize.shared.ids import first_id, new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import children_key
from deputize.shared.runs.store import RunStore, pause_unfinished, resume
from deputize.shared.wire import now

LATER = "dlg_" + "z" * 26
"""An id of a time after all others."""


@pytest.fixture
async def store() -> AsyncIterator[RunStore]:
    async with FakeAsyncRedis(decode_responses=True) as redis:
        yield RunStore(redis, 60)


async def accepted(store: RunStore, *, temporary: bool = True, **fields: Any) -> str:
    request = DelegationRequest(task="t", **fields)
    return (await store.accept([(new_id(), request, request.limits)], 0, temporary=temporary))[0].id


async def claimed(store: RunStore, id: str) -> bool:
    return await store.claim(id, "token", "worker-1", 10) is not None


async def test_what_is_left_is_paused_and_no_ticket_and_no_janitor_goes_on_with_it(store: RunStore) -> None:
    waits, ran = await accepted(store), await accepted(store)
    assert await claimed(store, ran)
    assert await pause_unfinished(store.redis, LATER, temporary=True) == 2
    for id in (waits, ran):
        found = await store.get(id)
        assert (found.status, found.paused) == (Status.QUEUED, True)
        assert not await claimed(store, id)
    assert await store.reap(30) == []


async def test_what_is_resumed_is_due_at_once_with_its_children_and_is_not_paused_again(store: RunStore) -> None:
    parent = await accepted(store)
    child = await accepted(store, parent_id=parent)
    stack = first_id(now())
    await pause_unfinished(store.redis, LATER, temporary=True)
    await resume(store.redis, parent)
    assert {one.id for one in await store.reap(30)} == {parent, child}
    assert await pause_unfinished(store.redis, stack, temporary=True) == 0  # a worker of this stack starts again
    assert await claimed(store, parent)
    assert (await store.get(child)).paused is False
    await resume(store.redis, parent)  # without effect on one that runs
    assert (await store.get(parent)).status == "running"


async def test_workers_that_start_do_not_pause_what_was_resumed_before(
    store: RunStore,
) -> None:
    parent = await accepted(store, temporary=False)
    child = await accepted(store, parent_id=parent)
    await store.redis.sadd(children_key(parent), child)
    assert await claimed(store, parent)
    stack = first_id(now())
    await resume(store.redis, parent)
    assert await pause_unfinished(store.redis, stack, temporary=True) == 0
    assert ((await store.get(parent)).paused, (await store.get(child)).paused) == (False, False)
    assert await pause_unfinished(store.redis, LATER, temporary=True) == 2  # by a later stack


async def test_what_is_younger_than_the_stack_is_left_alone(store: RunStore) -> None:
    stack = first_id(now())
    id = await accepted(store)
    assert await pause_unfinished(store.redis, stack, temporary=True) == 0
    assert await claimed(store, id)


async def test_a_stack_that_stays_goes_on_with_what_was_submitted_to_one_that_stays(store: RunStore) -> None:
    durable, left = await accepted(store, temporary=False), await accepted(store)
    assert await pause_unfinished(store.redis, LATER, temporary=True) == 2
    assert await pause_unfinished(store.redis, LATER, temporary=False) == 1
    assert ((await store.get(durable)).paused, (await store.get(left)).paused) == (False, True)
    assert [one.id for one in await store.reap(30)] == [durable]


async def test_a_paused_one_can_be_cancelled(store: RunStore) -> None:
    waits, ran = await accepted(store), await accepted(store)
    assert await claimed(store, ran)
    await pause_unfinished(store.redis, LATER, temporary=True)
    assert (await store.cancel(waits), await store.cancel(ran)) == ("cancelled", "asked")
    assert await pause_unfinished(store.redis, LATER, temporary=True) == 0
    assert not (await store.get(ran)).paused
    assert await claimed(store, ran)  # a worker ends it, with what it did


async def test_what_is_finished_or_unknown_cannot_be_resumed(store: RunStore) -> None:
    id = await accepted(store)
    await store.cancel(id)
    with pytest.raises(Conflict, match="is finished"):
        await resume(store.redis, id)
    with pytest.raises(NotFound):
        await resume(store.redis, new_id())
