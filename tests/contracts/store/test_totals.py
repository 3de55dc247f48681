"""The totals of the metrics: counted in the write that they are about, once, however often it is sent."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

from deputize.shared.connection import Pipe
from deputize.shared.ids import new_id
from deputize.shared.message import Message, MessageMode
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import LEASES, METRICS, record_key
from deputize.shared.runs.messages import send
from deputize.shared.runs.record import SPENT
from deputize.shared.runs.store import RunStore
from deputize.shared.runs.webhook_queue import settle, take
from deputize.worker.core.emit import RunUpdate
from tests.contracts.store.records import accepted, claimed, ending, turn, write

ACCEPTED, FINISHED, LOST = (
    f"deputize_{name}_total" for name in ("delegations_accepted", "delegations_finished", "leases_lost")
)
TURNS, TOKENS, COST, TRIES = (f"deputize_{name}_total" for name in ("turns", "tokens", "cost_usd", "webhook_tries"))
COUNTS = Counter({json.dumps([TURNS]): 1})


async def totals(store: RunStore) -> dict[tuple[str, ...], int]:
    """All of them but the accepted delegations."""
    fields: dict[str, str] = await store.redis.hgetall(METRICS)
    found = {tuple(json.loads(field)): int(total) for field, total in fields.items()}
    found.pop((ACCEPTED,), None)
    return found


def spent(cost: float | None = None, **tokens: int) -> dict[str, str]:
    zero = {"inputTokens": 0, "outputTokens": 0, "cacheReadTokens": 0, "cacheWriteTokens": 0}
    return {SPENT: json.dumps(zero | tokens | {"costUsd": cost}, separators=(",", ":"))}


async def test_a_delegation_is_accepted_once_however_often_it_is_sent(store: RunStore) -> None:
    request = DelegationRequest(task="do it", idempotency_key="k")
    id = new_id()
    for new in (id, id, new_id()):
        await store.accept([(new, request, request.limits)], 30)
    await accepted(store)
    assert await store.redis.hgetall(METRICS) == {json.dumps([ACCEPTED]): "2"}


async def test_a_write_that_is_sent_twice_is_counted_once(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    for seq in (2, 3):
        writing = RunUpdate(events=[turn(claim, seq)], counts=COUNTS)
        assert [await write(pipe, claim, writing, seq - 1) for _ in range(2)] == [1, 1]
    assert await totals(store) == {(TURNS,): 2}


async def test_a_worker_that_lost_its_fence_counts_nothing(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    late = RunUpdate(events=[turn(claim, 2)], counts=COUNTS, fields=spent(0.5, inputTokens=1))
    assert not await write(pipe, replace(claim, fence="0:other"), late)
    assert await totals(store) == {}


async def test_what_is_spent_is_counted_as_it_grows_also_from_one_attempt_to_the_next(
    store: RunStore, pipe: Pipe
) -> None:
    claim = await claimed(store)
    steps = (spent(0.1, inputTokens=10), spent(0.1, inputTokens=10), spent(0.3, inputTokens=10, cacheReadTokens=7))
    for number, fields in enumerate(steps, 1):
        assert [await write(pipe, claim, RunUpdate(fields=fields, model="m"), number) for _ in range(2)] == [1, 1]
    await store.redis.zadd(LEASES, {claim.id: 1})
    assert len(await store.reap(30)) == 1
    again = await store.claim(claim.id, "token", "worker-2", 10)
    assert again is not None
    last = spent(0.3000004, inputTokens=11, outputTokens=5, cacheReadTokens=7)
    await write(pipe, again, RunUpdate(fields=last, model="m"))
    assert await totals(store) == {
        (TOKENS, "m", "input"): 11,
        (TOKENS, "m", "output"): 5,
        (TOKENS, "m", "cache_read"): 7,
        (COST, "m"): 300_000,
        (LOST,): 1,
    }


async def test_writes_that_are_sent_again_together_count_nothing_twice(store: RunStore, pipe: Pipe) -> None:
    """As after a connection that ended before the answers to all of them."""
    claim = await claimed(store)
    updates = [RunUpdate(number, fields=spent(inputTokens=10 * number), model="m") for number in (1, 2)]
    for again in (updates, updates[:1], updates):
        assert [await write(pipe, claim, update, update.number) for update in again] == [1] * len(again)
        assert await store.redis.hget(record_key(claim.id), SPENT) == spent(inputTokens=20)[SPENT]
    assert await totals(store) == {(TOKENS, "m", "input"): 20}


async def test_where_the_price_is_not_known_no_money_is_counted(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    await write(pipe, claim, RunUpdate(fields=spent(None, outputTokens=3)))
    assert await totals(store) == {(TOKENS, "other", "output"): 3}


async def test_a_lost_worker_is_counted_for_each_of_its_runs_once(store: RunStore) -> None:
    for _ in range(2):
        await store.redis.zadd(LEASES, {(await claimed(store)).id: 1})
    assert [len(await store.reap(30)) for _ in range(2)] == [2, 0]
    await store.redis.zadd(LEASES, {await accepted(store): 1})
    assert [found.kind for found in await store.reap(30)] == ["unclaimed"]
    assert await totals(store) == {(LOST,): 2}


async def test_an_end_is_counted_once_with_a_worker_and_without(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    last = replace(ending(claim, 2), counts=Counter({json.dumps([FINISHED, "succeeded", "completed"]): 1}))
    assert [await write(pipe, claim, last) for _ in range(2)] == [1, 1]
    cancelled, wrapped_up = await accepted(store), await accepted(store)
    assert [await store.cancel(cancelled) for _ in range(2)] == ["cancelled", "finished"]
    message = Message.new("", MessageMode.WRAP_UP, None)
    assert [await send(store.redis, wrapped_up, message, 60) for _ in range(2)] == [message.message_id] * 2
    assert await totals(store) == {
        (FINISHED, "succeeded", "completed"): 1,
        (FINISHED, "cancelled", "cancelled"): 1,
        (FINISHED, "cancelled", "wrapped_up"): 1,
    }


async def test_each_try_to_notify_is_counted_once_with_its_outcome(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store, webhook={"url": "https://example.org/done"})
    await write(pipe, claim, ending(claim, 2))
    for state, delay in (("pending", 0.0), ("pending", 0.0), ("failed", None)):
        ((notification, *_),) = await take(store.redis, 50, 50, 50)
        for _ in range(2):
            await settle(store.redis, notification.model_copy(update={"state": state}), delay)
    assert await totals(store) == {(TRIES, "retried"): 2, (TRIES, "failed"): 1}


async def test_since_when_a_delegation_is_queued_is_known(store: RunStore, pipe: Pipe) -> None:
    """After it was accepted, and whenever it is queued again."""

    async def since(id: str) -> Any:
        at = await store.redis.hget(record_key(id), "queued_at")
        await store.redis.hset(record_key(id), "queued_at", 1)
        return int(at)

    claim = await claimed(store)
    first = await since(claim.id)
    assert first > 1
    assert await write(pipe, claim, RunUpdate(events=[turn(claim, 2)], retry_ms=60_000))
    assert await since(claim.id) >= first + 60_000
    again = await store.claim(claim.id, "token", "worker-2", 10)
    assert again is not None
    await store.redis.zadd(LEASES, {claim.id: 1})
    await store.reap(30)
    assert await since(claim.id) >= first
    await store.redis.zadd(LEASES, {claim.id: 1})
    assert len(await store.reap(30)) == 1
    assert await since(claim.id) == 1, "nothing changed: no worker has claimed it"
