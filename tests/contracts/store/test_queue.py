"""In which order waiting runs get places in workers: asked of a real Redis and of fakeredis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from deputize.shared.connection import Pipe
from deputize.shared.ids import new_id
from deputize.shared.message import Message, MessageMode
from deputize.shared.request import After, DelegationRequest
from deputize.shared.runs import messages
from deputize.shared.runs.capacity import capacities
from deputize.shared.runs.keys import LEASES, OWNER_WEIGHTS, WAITING_RUNS, keys_of, record_key, waiting_runs_key
from deputize.shared.runs.record import Claim
from deputize.shared.runs.store import RELEASE, RunStore, pause_unfinished, resume
from deputize.shared.runs.upstreams import settle
from deputize.worker.core.emit import RunUpdate
from tests.contracts.store.records import LEASE, accepted, claimed, ending, write
from tests.runs.older_store import accept_unqueued

TOKENS = iter(f"token-{number}" for number in range(100_000))


async def accept_many(store: RunStore, count: int, owner: str = "", **fields: Any) -> list[str]:
    request = DelegationRequest(task="do it", **fields)
    new = [(new_id(), request, request.limits) for _ in range(count)]
    return [each.id for each in await store.accept(new, 30, owner=owner)]


async def take(store: RunStore, ticket: str) -> Claim | None:
    """What a worker does with a ticket."""
    return await store.claim(ticket, next(TOKENS), "worker-1", LEASE, is_ticket=True)


async def started(store: RunStore, tickets: Sequence[str]) -> list[str]:
    """The runs that start with these tickets, in their order."""
    claims = [await take(store, ticket) for ticket in tickets]
    return [claim.id for claim in claims if claim]


async def waiting(store: RunStore) -> set[str]:
    owners = await store.redis.zrange(WAITING_RUNS, 0, -1)
    found = [await store.redis.zrange(waiting_runs_key(owner), 0, -1) for owner in owners]
    assert all(found)
    return {id for runs in found for id in runs}


async def test_five_runs_do_not_wait_for_the_forty_of_another_owner(store: RunStore) -> None:
    many, few = await accept_many(store, 40, "ann"), await accept_many(store, 5, "bob")
    found = await started(store, [*many, *few])
    assert sorted(found) == sorted([*many, *few])
    assert found[:11] == [many[0], few[0], many[1], few[1], many[2], few[2], many[3], few[3], many[4], few[4], many[5]]
    assert found[11:] == many[6:]  # in the order of their acceptance
    assert await waiting(store) == set()


async def test_sessions_of_the_main_token_take_turns_as_owners_do(store: RunStore) -> None:
    many, few = await accept_many(store, 20, session_id="a"), await accept_many(store, 2, session_id="b")
    plain = await accept_many(store, 2)
    assert {*(await started(store, many))[:7]} == {*many[:3], *few, *plain}


async def test_an_owner_has_turns_by_its_weight(store: RunStore) -> None:
    await store.redis.hset(OWNER_WEIGHTS, mapping={"heavy": 3, "light": 0.5})
    runs = {owner: await accept_many(store, 60, owner) for owner in ("light", "heavy", "ann")}
    found = await started(store, runs["ann"][:45])
    shares = Counter(next(owner for owner, ids in runs.items() if id in ids) for id in found)
    assert all(abs(shares[owner] - share) <= 1 for owner, share in {"light": 5, "heavy": 30, "ann": 10}.items())


async def test_of_one_owner_the_highest_priority_is_first_and_then_what_was_accepted_first(store: RunStore) -> None:
    runs = {priority: await accept_many(store, 2, priority=priority) for priority in (5, 0, 9, 6)}
    tickets = [id for ids in runs.values() for id in ids]
    assert await started(store, tickets) == [*runs[9], *runs[6], *runs[5], *runs[0]]


async def test_a_child_is_before_its_owners_others_of_its_priority_because_a_run_waits_for_it(store: RunStore) -> None:
    parent = await claimed(store)
    others, urgent = await accept_many(store, 3), await accept_many(store, 1, priority=6)
    (child,) = await accept_many(store, 1, parent_id=parent.id)
    assert await started(store, others) == [*urgent, child, others[0]]


async def test_a_tree_of_children_takes_no_more_than_the_share_of_its_roots_owner(store: RunStore) -> None:
    (root,) = await accept_many(store, 1, "ann", session_id="a")
    claim = await take(store, root)
    assert claim
    tree = list[str]()
    for session in range(10):  # whatever a child names, and however deep it is
        parent = tree[-1] if tree else root
        tree += await accept_many(store, 5, "ann", parent_id=parent, session_id=f"s{session}")
    single = await accept_many(store, 5, "bob")
    found = await started(store, tree[:10])
    assert len({*found} & {*single}) == 5


async def test_what_an_earlier_version_accepted_counts_for_its_owner_and_so_do_its_children(store: RunStore) -> None:
    (root,) = await accept_many(store, 1, session_id="a")
    await store.redis.hdel(record_key(root), "share")
    (child,) = await accept_many(store, 1, parent_id=root, session_id="b")
    assert await store.redis.zrange(WAITING_RUNS, 0, -1) == ["session:a"]
    assert await started(store, [root, child]) == [child, root]


async def test_owners_that_come_later_do_not_go_before_one_that_waits(store: RunStore) -> None:
    first = await accept_many(store, 2, session_id="z")
    found = list[str]()
    for number in range(6):
        new = await accept_many(store, 2, session_id=f"a{number}")
        found += await started(store, new[:1])
    assert found.index(first[0]) == 0
    assert found.index(first[1]) <= 3


async def test_an_owner_with_one_waiting_run_at_a_time_has_as_many_starts_as_one_with_many(store: RunStore) -> None:
    many = await accept_many(store, 40, "aa")
    found, (last,) = list[str](), await accept_many(store, 1, "bb")
    own = {last}
    for ticket in many[:20]:
        found += await started(store, [ticket])
        if found[-1] in own:
            own.update(await accept_many(store, 1, "bb"))
    assert len(own & {*found}) == 10


async def test_a_ticket_without_a_waiting_run_starts_nothing(store: RunStore) -> None:
    running = await claimed(store)
    assert await started(store, [running.id, new_id()]) == []


async def test_a_claim_whose_answer_was_lost_takes_no_second_run(store: RunStore) -> None:
    many, (one,) = await accept_many(store, 3, "ann"), await accept_many(store, 1, "bob")
    await take(store, many[0])
    first, again = [await store.claim(many[2], "lost", "worker-1", LEASE, is_ticket=True) for _ in range(2)]
    assert first
    assert first.id == one
    assert first == again
    named, once_more = [await store.claim(many[1], "same", "worker-1", LEASE, is_ticket=True) for _ in range(2)]
    assert named
    assert named.id == many[1]
    assert named == once_more
    assert await waiting(store) == {many[2]}


async def test_what_cannot_start_is_not_in_the_queue(store: RunStore) -> None:
    cancelled, wrapped, paused, named, kept = await accept_many(store, 5)
    upstream = await claimed(store)
    (later,) = await accept_many(store, 1, after=[After(id=upstream.id)])
    assert await waiting(store) == {cancelled, wrapped, paused, named, kept}
    await store.cancel(cancelled)
    await messages.send(store.redis, wrapped, Message.new("", MessageMode.WRAP_UP, None), 60)
    assert await store.claim(named, "token", "worker-1", LEASE)
    assert await waiting(store) == {paused, kept}
    await store.redis.hset(record_key(paused), "temporary", "1")
    assert await pause_unfinished(store.redis, new_id(), temporary=False)
    assert await waiting(store) == {kept}
    assert await started(store, [paused, later]) == [kept]


async def test_what_may_start_again_is_in_the_queue_with_its_ticket(store: RunStore) -> None:
    (paused,) = await accept_many(store, 1)
    await store.redis.hset(record_key(paused), "temporary", "1")
    await pause_unfinished(store.redis, new_id(), temporary=False)
    await resume(store.redis, paused)
    assert await waiting(store) == set()
    assert [one.id for one in await store.reap(30)] == [paused]
    assert await waiting(store) == {paused}


async def test_a_dependant_is_in_the_queue_once_its_upstream_has_ended(store: RunStore, pipe: Pipe) -> None:
    upstream = await claimed(store)
    (later,) = await accept_many(store, 1, after=[After(id=upstream.id)])
    await store.reap(30)
    assert await waiting(store) == set()
    await write(pipe, upstream, ending(upstream, 2))
    assert [(one.id, one.kind) for one in await store.reap(30)] == [(later, "decided")]
    assert await waiting(store) == set()
    assert await settle(store, later)
    assert await waiting(store) == {later}
    assert await started(store, [later]) == [later]


async def test_a_lost_run_is_the_first_of_its_owner_again(store: RunStore) -> None:
    lost = await claimed(store)
    others = await accept_many(store, 3)
    await store.redis.zadd(LEASES, {lost.id: 1})
    await store.reap(30)
    assert await started(store, others) == [lost.id, *others[:2]]


async def test_a_ticket_of_an_earlier_attempt_does_not_hurry_the_next_one(store: RunStore, pipe: Pipe) -> None:
    """It is for another run, or for none: with the next attempt a janitor sends another ticket."""
    released, unread, retried = await claimed(store), await claimed(store), await claimed(store)
    for claim, delay in (released, 0), (unread, 60_000):
        arguments = {"id": claim.id, "fence": claim.fence, "claim_ms": delay}
        assert await pipe.script(RELEASE, [record_key(claim.id), LEASES], arguments) == "released"
    await write(pipe, retried, RunUpdate(retry_ms=60_000))
    assert await started(store, [released.id, unread.id, retried.id]) == []
    (other,) = await accept_many(store, 1)
    assert await started(store, [retried.id]) == [other]
    assert [one.id for one in await store.reap(30)] == [released.id]
    assert await started(store, [other]) == [released.id]


async def test_a_ticket_of_an_older_version_starts_the_run_that_it_names(store: RunStore) -> None:
    """That version puts nothing into the queue."""
    request = DelegationRequest(task="do it")
    old = [await accept_unqueued(store, request) for _ in range(2)]
    new = await accept_many(store, 2)
    assert await started(store, [old[1], old[1], new[1], old[0]]) == [old[1], *new, old[0]]


async def test_what_a_worker_of_an_older_version_took_is_passed_over(store: RunStore, pipe: Pipe) -> None:
    taken, ended, next_one = await claimed(store), await claimed(store), await accepted(store)
    others = await accept_many(store, 2, "ann")
    await write(pipe, ended, ending(ended, 2))
    await store.redis.zadd(waiting_runs_key("main"), {taken.id: -10, ended.id: -10})  # it took nothing out
    assert await started(store, [taken.id, *others]) == [next_one, *others]
    assert await waiting(store) == set()


async def test_a_queue_whose_runs_another_program_removed_starts_the_others(store: RunStore) -> None:
    await accept_many(store, 2, "ann")
    gone, rest = await accept_many(store, 1, "bob"), await accept_many(store, 1, "cleo")
    await store.redis.delete(waiting_runs_key("owner:ann"), *keys_of(gone[0]))
    assert await started(store, gone) == rest
    assert await waiting(store) == set()
    assert not await store.redis.exists(record_key(gone[0]))


async def test_what_waits_for_a_place_is_shown_by_owner_and_to_each_for_itself(store: RunStore) -> None:
    assert await capacities(store.redis) == []
    many, few = await accept_many(store, 3, "ann"), await accept_many(store, 2, "bob")
    plain = await accept_many(store, 2, session_id="s")
    (seen,), (own,) = await capacities(store.redis), await capacities(store.redis, "bob")
    assert (seen.endpoint, seen.model, seen.waiting, seen.owners) == ("workers", "", 7, {"ann": 3, "bob": 2})
    assert (own.waiting, own.owners) == (7, {"bob": 2})
    await started(store, [*many, *few, *plain])
    assert await capacities(store.redis) == []


async def test_accepting_the_same_delegation_again_gives_it_no_second_place(store: RunStore) -> None:
    id = await accepted(store, idempotency_key="k")
    assert await started(store, [id]) == [id]
    assert await accepted(store, idempotency_key="k") == id
    assert await waiting(store) == set()
