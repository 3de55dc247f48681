"""Who carries a run out, for how long, and how it is cancelled: asked of a real Redis and of fakeredis."""

from __future__ import annotations

import asyncio
import time

import pytest

from deputize.shared.bus import Bus
from deputize.shared.connection import Pipe
from deputize.shared.delegation import Status, TerminationReason
from deputize.shared.ids import new_id
from deputize.shared.runs.keys import CANCEL, LEASES, keys_of, record_key
from deputize.shared.runs.store import RELEASE, RENEW, RunStore
from deputize.worker.core.emit import RunUpdate
from tests.contracts.store.records import LEASE, accepted, claimed, ending, turn, write


@pytest.mark.requirement("P-16")
async def test_of_five_workers_with_the_same_ticket_one_gets_the_run(store: RunStore) -> None:
    id = await accepted(store)
    claims = await asyncio.gather(*(store.claim(id, f"token-{n}", f"worker-{n}", LEASE) for n in range(5)))
    assert len([claim for claim in claims if claim]) == 1


async def test_a_claim_whose_answer_was_lost_can_be_made_again(store: RunStore) -> None:
    id = await accepted(store)
    before = time.time()
    first, again = [await store.claim(id, "token", "worker-1", LEASE) for _ in range(2)]
    assert first is not None
    assert first == again
    assert (first.fence, first.attempt) == ("1:token", 1)
    assert before - 1 <= await store.redis.zscore(LEASES, id) / 1000 - LEASE <= time.time() + 1


async def test_the_record_names_who_took_it_last_and_when_it_was_started_first(store: RunStore) -> None:
    claim = await claimed(store)
    started = (await store.get(claim.id)).started_at
    await store.redis.zadd(LEASES, {claim.id: 1})
    await store.reap(30)
    assert await store.claim(claim.id, "token", "worker-2", LEASE)
    found = await store.get(claim.id)
    assert (found.worker, found.started_at) == ("worker-2", started)
    assert started is not None


async def test_what_is_gone_or_held_cannot_be_claimed_whether_it_works_or_waits(store: RunStore) -> None:
    assert await store.claim(new_id(), "token", "worker-1", LEASE) is None
    held = await claimed(store)
    for status in ("running", "waiting"):
        await store.redis.hset(record_key(held.id), "status", status)
        assert await store.claim(held.id, "another", "worker-2", LEASE) is None
        assert (await store.get(held.id)).attempt == 1
    assert await store.claim(held.id, "token", "worker-1", LEASE) is None  # its own, but it has long begun


async def test_renewing_distinguishes_held_lost_cancelled_and_finished(store: RunStore, pipe: Pipe) -> None:
    held, lost, cancelled, finished = [await claimed(store) for _ in range(4)]
    await store.redis.hset(record_key(lost.id), "fence", "9:other")
    assert await store.cancel(cancelled.id) == "asked"
    await write(pipe, finished, ending(finished, 2))
    claims = [held, lost, cancelled, finished]
    await store.redis.zadd(LEASES, {claim.id: 1 for claim in claims[:3]})
    before = time.time()
    keys = ["deputize:leases", *(record_key(claim.id) for claim in claims)]
    runs = [{"id": claim.id, "fence": claim.fence} for claim in claims]
    gone = new_id()
    strange = [{"id": finished.id, "fence": "9:other"}, {"id": gone, "fence": "1:token"}]
    keys += [record_key(each["id"]) for each in strange]
    answers = await pipe.script(RENEW, keys, {"lease_ms": 10_000, "runs": runs + strange})
    assert answers == ["renewed", "fenced", "cancel", "renewed", "fenced", "fenced"]
    assert await store.redis.zscore(LEASES, gone) is None
    assert await store.redis.zscore(LEASES, finished.id) is None
    assert await store.redis.zscore(LEASES, lost.id) == 1
    for renewed in (held, cancelled):
        assert before - 1 <= await store.redis.zscore(LEASES, renewed.id) / 1000 - 10 <= time.time() + 1


@pytest.mark.requirement("P-15")
async def test_cancelling_before_the_start_ends_the_delegation_at_once(store: RunStore) -> None:
    id = await accepted(store)
    assert [await store.cancel(id) for _ in range(2)] == ["cancelled", "finished"]
    found = await store.get(id)
    assert found.result is not None
    assert (found.status, found.result.termination_reason) == (Status.CANCELLED, TerminationReason.CANCELLED)
    assert [event.event.type for event in await store.events(id)] == ["run_queued", "run_finished"]
    assert await store.claim(id, "token", "worker-1", LEASE) is None


@pytest.mark.requirement("P-15")
async def test_cancelling_reaches_every_delegation_below_whatever_became_of_some(store: RunStore) -> None:
    parent = await claimed(store)
    child = await accepted(store, parent_id=parent.id)
    below = await accepted(store, parent_id=child)
    forgotten, beside = await accepted(store, parent_id=parent.id), await accepted(store)
    await store.redis.delete(*keys_of(forgotten))
    assert await store.cancel(parent.id) == "asked"
    assert [(await store.get(id)).status for id in (child, below, beside)] == ["cancelled", "cancelled", "queued"]


async def test_the_worker_of_a_run_hears_that_it_is_to_be_cancelled(store: RunStore, bus: Bus) -> None:
    claim = await claimed(store)
    async with bus.listen(CANCEL) as asked:
        await store.cancel(claim.id)
        while (heard := await asyncio.wait_for(asked.get(), 30)) is None:
            pass  # means only that something may have been missed
    assert heard == claim.id


async def test_what_lapsed_is_fenced_off_and_queued_again(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    await store.redis.zadd("deputize:leases", {claim.id: 1})
    assert [(one.id, one.kind, one.attempt) for one in await store.reap(30)] == [(claim.id, "lapsed", 1)]
    assert await write(pipe, claim, RunUpdate(events=[turn(claim, 2)])) == 0
    assert await store.reap(30) == []
    again = await store.claim(claim.id, "token", "worker-2", LEASE)
    assert again is not None
    assert again.fence == "2:token"


async def test_a_lapsed_lease_counts_as_a_lost_worker_and_a_hand_over_does_not(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    assert claim.past.fence == ""
    found = list[tuple[int, int, bool]]()
    for ends in ("handed over", "lapsed", "handed over", "lapsed"):
        if ends == "lapsed":
            await store.redis.zadd("deputize:leases", {claim.id: 1})
            await store.reap(30)
        else:
            assert (
                await pipe.script(
                    RELEASE,
                    [record_key(claim.id), "deputize:leases"],
                    {"id": claim.id, "fence": claim.fence, "claim_ms": 0},
                )
                == "released"
            )
        again = await store.claim(claim.id, f"after {len(found)}", "worker-1", LEASE)
        assert again is not None
        assert again.past.fence == claim.fence
        found.append((again.attempt, again.past.lost, again.past.handed_over))
        claim = again
    assert found == [(2, 0, True), (3, 1, False), (4, 1, True), (5, 2, False)]


async def test_cancelling_between_two_attempts_leaves_the_end_to_the_next_one(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    await pipe.script(
        RELEASE, [record_key(claim.id), "deputize:leases"], {"id": claim.id, "fence": claim.fence, "claim_ms": 30_000}
    )
    assert await store.reap(30) == []
    assert [await store.cancel(claim.id) for _ in range(2)] == ["asked", "asked"]
    assert [one.kind for one in await store.reap(30)] == ["unclaimed"]
    again = await store.claim(claim.id, "next", "worker-1", LEASE)
    assert again is not None
    assert again.cancelled


async def test_the_next_attempt_finds_history_and_checkpoint(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    await write(pipe, claim, RunUpdate(history=['{"a":"é"}'], fields={"checkpoint": '{"turns":1}'}))
    await store.redis.zadd("deputize:leases", {claim.id: 1})
    await store.reap(30)
    again = await store.claim(claim.id, "other", "worker-2", LEASE)
    assert again is not None
    assert (again.history, again.checkpoint, again.attempt) == (['{"a":"é"}'.encode()], {"turns": 1}, 2)


async def test_the_next_attempt_finds_the_time_used_when_the_lease_was_last_renewed_or_released(
    store: RunStore, pipe: Pipe
) -> None:
    claim = await claimed(store)
    key = record_key(claim.id)
    runs = [{"id": claim.id, "fence": claim.fence, "elapsed_ms": 1500}]
    assert await pipe.script(RENEW, [LEASES, key], {"lease_ms": LEASE * 1000, "runs": runs}) == ["renewed"]
    unknown = [{"id": claim.id, "fence": claim.fence}]
    assert await pipe.script(RENEW, [LEASES, key], {"lease_ms": LEASE * 1000, "runs": unknown}) == ["renewed"]
    await store.redis.zadd(LEASES, {claim.id: 1})
    await store.reap(30)
    second = await store.claim(claim.id, "second", "worker-2", LEASE)
    assert second is not None
    late = [{"id": claim.id, "fence": claim.fence, "elapsed_ms": 9000}]
    assert await pipe.script(RENEW, [LEASES, key], {"lease_ms": LEASE * 1000, "runs": late}) == ["fenced"]
    released = {"id": claim.id, "fence": second.fence, "claim_ms": 0, "elapsed_ms": 4000}
    assert await pipe.script(RELEASE, [key, LEASES], released) == "released"
    third = await store.claim(claim.id, "third", "worker-3", LEASE)
    assert third is not None
    assert (claim.elapsed, second.elapsed, third.elapsed) == (0.0, 1.5, 4.0)
    await write(pipe, third, RunUpdate(retry_ms=0))
    again = await store.claim(claim.id, "again", "worker-1", LEASE)
    assert again is not None
    assert again.elapsed == 0.0


async def test_a_run_hears_of_its_cancellation_before_its_child_does(store: RunStore, bus: Bus) -> None:
    """It would take a child that ends first for one that ended by itself, and go on to its next turn."""
    parent = await claimed(store)
    child = await claimed(store, parent_id=parent.id)
    async with bus.listen(CANCEL) as asked:
        await store.cancel(parent.id)
        heard: list[str] = []
        while len(heard) < 2:
            heard += [id for id in [await asyncio.wait_for(asked.get(), 30)] if id is not None]
    assert heard == [parent.id, child.id]
