"""Delegations that wait for others (``after``): released or ended once, whatever happens around it."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from deputize.shared.connection import Pipe
from deputize.shared.delegation import Status, TerminationReason
from deputize.shared.facts import Verification
from deputize.shared.ids import first_id, new_id
from deputize.shared.runs.disk import prune
from deputize.shared.runs.keys import LEASES, dependants_key, keys_of
from deputize.shared.runs.record_lists import RecordLists
from deputize.shared.runs.store import RunStore, pause_unfinished, resume
from deputize.shared.runs.upstreams import settle
from deputize.shared.status_counts import StatusCounts
from deputize.shared.wire import now
from tests.contracts.store.records import LEASE, accepted, claimed, ending, write


def after(*ids: str, require: Literal["finished", "verified"] = "finished") -> dict[str, Any]:
    return {"after": [{"id": id, "require": require} for id in ids]}


async def look(store: RunStore) -> list[str]:
    """What a janitor does; returns the ids for which it sends tickets."""
    found = await store.reap(30)
    return sorted([one.id for one in found if one.kind != "decided" or await settle(store, one.id)])


async def started(store: RunStore) -> tuple[str, Any]:
    """A delegation that runs, and one that waits for it, which a janitor has looked at."""
    upstream = await claimed(store)
    waits = await accepted(store, **after(upstream.id))
    assert await look(store) == []
    return waits, upstream


async def test_it_is_queued_without_a_ticket_until_its_upstream_has_ended(store: RunStore, pipe: Pipe) -> None:
    waits, upstream = await started(store)
    found = await store.get(waits)
    assert (found.status, found.waits_for, found.attempt) == (Status.QUEUED, [upstream.id], 0)
    assert await store.claim(waits, "token", "worker-1", LEASE) is None
    assert (await settle(store, waits), await look(store)) == (False, [])
    assert await write(pipe, upstream, ending(upstream, 2))
    assert await store.redis.exists(dependants_key(upstream.id)) == 0
    assert await look(store) == [waits]
    assert (await store.get(waits)).waits_for == []
    claim = await store.claim(waits, "token", "worker-1", LEASE)
    assert claim is not None
    assert upstream.id in claim.kept["upstreams"]
    assert await look(store) == []


@pytest.mark.parametrize("order", ["before", "between", "after"])
async def test_an_end_is_noticed_whenever_it_comes(store: RunStore, pipe: Pipe, order: str) -> None:
    """Before the acceptance, after it and before the first look, and later."""
    upstream = await claimed(store)
    if order == "before":
        assert await write(pipe, upstream, ending(upstream, 2))
    waits = await accepted(store, **after(upstream.id))
    if order == "after":
        assert await look(store) == []
    if order != "before":
        assert await write(pipe, upstream, ending(upstream, 2))
    assert await look(store) == [waits]
    assert await store.redis.exists(dependants_key(upstream.id)) == 0


async def test_what_a_killed_janitor_has_not_settled_is_due_again(store: RunStore, pipe: Pipe) -> None:
    waits, upstream = await started(store)
    assert await write(pipe, upstream, ending(upstream, 2))
    assert [(one.id, one.kind) for one in await store.reap(30)] == [(waits, "decided")]
    assert await store.reap(30) == []
    await store.redis.zadd(LEASES, {waits: 1})  # the time for it is over
    assert await look(store) == [waits]
    await store.redis.zadd(LEASES, {waits: 1})  # it was killed before it sent the ticket
    assert [(one.id, one.kind) for one in await store.reap(30)] == [(waits, "unclaimed")]
    assert await settle(store, waits) is False


async def test_of_several_all_have_to_end(store: RunStore, pipe: Pipe) -> None:
    upstreams = [await claimed(store) for _ in range(3)]
    waits = await accepted(store, **after(*(each.id for each in upstreams)))
    for upstream in upstreams:
        assert await look(store) == []
        assert await write(pipe, upstream, ending(upstream, 2))
    assert await look(store) == [waits]


@pytest.mark.parametrize(
    ("how", "status", "reason"),
    [
        (TerminationReason.MAX_TURNS, Status.FAILED, TerminationReason.REFUSED),
        (TerminationReason.CANCELLED, Status.CANCELLED, TerminationReason.CANCELLED),
    ],
)
async def test_an_upstream_that_does_not_succeed_ends_all_that_wait_for_it_at_once(
    store: RunStore, pipe: Pipe, how: TerminationReason, status: Status, reason: TerminationReason
) -> None:
    """Also those that wait for these, and with another upstream that still runs."""
    waits, upstream = await started(store)
    running = await claimed(store)
    both = await accepted(store, **after(running.id, waits))
    last = await accepted(store, **after(both))
    assert await look(store) == []
    end = Status.CANCELLED if how is TerminationReason.CANCELLED else Status.FAILED
    assert await write(pipe, upstream, ending(upstream, 2, status=end, termination_reason=how))
    cause = "was cancelled" if how is TerminationReason.CANCELLED else f"failed ({how})"
    for _ in range(3):
        assert await look(store) == []
    for id, direct in ((waits, upstream.id), (both, waits), (last, both)):
        found = await store.get(id)
        assert found.result is not None
        assert (found.status, found.result.termination_reason, found.attempt) == (status, reason, 0)
        assert found.result.errors[0].startswith(direct)
        assert found.result.errors[-1] == f"{upstream.id} {cause}"
        assert found.waits_for == []
        assert [each.event.type for each in await store.events(id)] == ["run_queued", "run_finished"]
        assert await store.redis.zscore(LEASES, id) is None


@pytest.mark.parametrize("verdict", ["verified", "inconclusive", "unverified"])
async def test_verified_needs_the_verdict(store: RunStore, pipe: Pipe, verdict: Any) -> None:
    upstream = await claimed(store)
    strict = await accepted(store, **after(upstream.id, require="verified"))
    lax = await accepted(store, **after(upstream.id))
    assert await write(pipe, upstream, ending(upstream, 2, verification=Verification(verdict=verdict)))
    assert await look(store) == sorted([strict, lax] if verdict == "verified" else [lax])
    if verdict != "verified":
        found = (await store.get(strict)).result
        assert found is not None
        assert found.errors == [f"the verdict on {upstream.id} is {verdict}, and verified is required"]


async def test_what_was_cancelled_is_not_released_and_ends_what_waits_for_it(store: RunStore, pipe: Pipe) -> None:
    waits, upstream = await started(store)
    last = await accepted(store, **after(waits))
    assert await store.cancel(waits) == "cancelled"
    assert await write(pipe, upstream, ending(upstream, 2))
    assert await store.redis.zrange(LEASES, 0, -1) == [last]
    assert await look(store) == []
    assert [(await store.get(id)).status for id in (waits, last)] == ["cancelled", "cancelled"]
    assert await store.redis.zrange(LEASES, 0, -1) == []
    assert await settle(store, waits) is False


async def test_one_that_is_started_meanwhile_is_not_ended(store: RunStore, pipe: Pipe) -> None:
    waits, upstream = await started(store)
    assert await write(pipe, upstream, ending(upstream, 2))
    assert await look(store) == [waits]
    await store.end_waiting(waits, {"status": Status.FAILED, "termination_reason": TerminationReason.REFUSED})
    assert (await store.get(waits)).status == "queued"


async def test_an_upstream_that_is_gone_ends_it(store: RunStore) -> None:
    waits, upstream = await started(store)
    assert await settle(store, new_id()) is False
    await store.redis.delete(*keys_of(upstream.id))
    await store.redis.zadd(LEASES, {waits: 1})
    assert await look(store) == []
    found = (await store.get(waits)).result
    assert found is not None
    assert found.errors == [f"the record of {upstream.id} is gone, so its end is not known"]


async def test_what_is_waited_for_is_not_pruned(store: RunStore, pipe: Pipe) -> None:
    ended, runs = await claimed(store), await claimed(store)
    waits = await accepted(store, **after(ended.id, runs.id))
    assert await write(pipe, ended, ending(ended, 2))
    assert (await prune(store.redis, 0)).ids == []
    assert await write(pipe, runs, ending(runs, 2))
    assert await look(store) == [waits]
    assert {*(await prune(store.redis, 0)).ids} == {ended.id, runs.id}


async def test_a_paused_one_waits_until_it_is_resumed(store: RunStore, pipe: Pipe) -> None:
    waits, upstream = await started(store)
    await pause_unfinished(store.redis, "dlg_" + "z" * 26, temporary=True)
    await resume(store.redis, upstream.id)
    assert (await RecordLists(store).counts()).to_dict() == StatusCounts(queued=2, paused=1).to_dict()
    assert await look(store) == [upstream.id]
    again = await store.claim(upstream.id, "token", "worker-2", LEASE)
    assert again is not None
    assert await write(pipe, again, ending(again, 2))
    assert await look(store) == []
    assert ((await store.get(waits)).paused, first_id(now()) > waits) == (True, True)
    await resume(store.redis, waits)
    assert await look(store) == [waits]
