"""The same questions to a record kept in a real Redis and in fakeredis (P-23)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeServer

from shared.bus import Bus, follow
from shared.connection import Pipe, connect
from shared.delegation import Artifact, DelegationRequest, Limits, Status, TerminationReason, ToolAgentResult
from shared.errors import Fenced, KeyReused, NotFound
from shared.events import Envelope, RunFinished, TurnStarted
from shared.ids import new_id
from shared.runs.artifacts import fields_of
from shared.runs.keys import CANCEL, INDEX, LEASES, PRUNE, artifacts_key, children_key, keys_of, record_key
from shared.runs.record import Claim
from shared.runs.store import PAGE, RECORD, RELEASE, RENEW, WRITING, RunStore
from shared.runs.update import RunUpdate
from shared.wire import now
from tests.waiting import until

LEASE = 10.0


@pytest.fixture(params=["fake", "real"])
async def clients(request: pytest.FixtureRequest) -> AsyncIterator[list[Any]]:
    """Three connections to one Redis: for reading, for writing and for listening."""
    if request.param == "fake":
        server = FakeServer()
        made: list[Any] = [FakeAsyncRedis(server=server, decode_responses=True) for _ in range(3)]
    else:
        made = [connect(request.getfixturevalue("redis_url")) for _ in range(3)]
    yield made
    for client in made:
        await client.aclose()


@pytest.fixture
def store(clients: list[Any]) -> RunStore:
    return RunStore(clients[0], retention_seconds=60)


@pytest.fixture
async def pipe(clients: list[Any]) -> AsyncIterator[Pipe]:
    async with Pipe(clients[1], WRITING) as pipe:
        yield pipe


@pytest.fixture
async def bus(clients: list[Any]) -> AsyncIterator[Bus]:
    async with Bus(clients[2]) as bus:
        yield bus


async def accepted(store: RunStore, **fields: Any) -> str:
    request = DelegationRequest(task="do it", **fields)
    return (await store.accept([(new_id(), request, request.limits)], 30))[0].id


async def claimed(store: RunStore) -> Claim:
    claim = await store.claim(await accepted(store), "token", "worker-1", LEASE)
    assert claim is not None
    return claim


def turn(claim: Claim, seq: int) -> tuple[int, str]:
    event = TurnStarted(turn=seq)
    return seq, Envelope(delegation_id=claim.id, seq=seq, at=now(), attempt=claim.attempt, event=event).to_json()


def ending(claim: Claim, seq: int) -> RunUpdate:
    result = ToolAgentResult(
        delegation_id=claim.id, status=Status.SUCCEEDED, termination_reason=TerminationReason.COMPLETED
    )
    event = Envelope(delegation_id=claim.id, seq=seq, at=now(), attempt=claim.attempt, event=RunFinished(result=result))
    fields = {"status": "succeeded", "result": result.to_json(), "finished": now().isoformat()}
    return RunUpdate(events=[(seq, event.to_json())], fields=fields, retention=60)


async def note(events: AsyncIterator[Envelope], seen: list[int | None]) -> None:
    async for envelope in events:
        seen.append(envelope.seq)


async def write(pipe: Pipe, claim: Claim, writing: RunUpdate) -> bool:
    """Returns whether it was written, and not fenced off."""
    answer = await pipe.script(RECORD, *writing.call(claim.id, claim.fence))
    assert answer in ("written", "fenced")
    return answer == "written"


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
    page = await store.list(status=None, session=None, labels={}, limit=10, cursor=None)
    assert [item.request.task for item in page.items] == ["do it"]


async def test_the_same_key_and_body_give_the_first_delegation(store: RunStore) -> None:
    assert await accepted(store, idempotency_key="k") == await accepted(store, idempotency_key="k")


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


async def test_nobody_claims_what_is_gone_or_held_whether_it_works_or_waits(store: RunStore) -> None:
    assert await store.claim(new_id(), "token", "worker-1", LEASE) is None
    held = await claimed(store)
    for status in ("running", "waiting"):
        await store.redis.hset(record_key(held.id), "status", status)
        assert await store.claim(held.id, "another", "worker-2", LEASE) is None
        assert (await store.get(held.id)).attempt == 1
    assert await store.claim(held.id, "token", "worker-1", LEASE) is None  # its own, but it has long begun


@pytest.mark.requirement("P-13")
async def test_a_write_that_is_sent_twice_is_kept_once(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    writing = RunUpdate(events=[turn(claim, 2), turn(claim, 3)], before=0, history=['{"role":"user"}'])
    assert [await write(pipe, claim, writing) for _ in range(2)] == [1, 1]
    assert [event.seq for event in await store.events(claim.id)] == [1, 2, 3]
    assert await store.redis.llen(f"deputize:run:{{{claim.id}}}:history") == 1


async def test_a_worker_that_lost_its_fence_writes_nothing(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    await store.redis.hset(record_key(claim.id), "fence", "2:other")
    assert await write(pipe, claim, RunUpdate(events=[turn(claim, 2)], fields={"status": "failed"})) == 0
    assert [event.seq for event in await store.events(claim.id)] == [1]
    assert (await store.get(claim.id)).status is Status.RUNNING


async def test_the_last_write_ends_the_run_and_gives_every_key_an_end(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    await write(pipe, claim, RunUpdate(history=['{"role":"user"}']))
    assert await write(pipe, claim, ending(claim, 2)) == 1
    keys = [key async for key in store.redis.scan_iter("deputize:run:*")]
    assert len(keys) == 3
    assert all([0 < await store.redis.ttl(key) <= 60 for key in keys])
    assert await store.redis.zcard("deputize:leases") == 0


async def test_the_last_write_sent_twice_says_yes_twice(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    assert [await write(pipe, claim, ending(claim, 2)) for _ in range(2)] == [1, 1]
    assert await write(pipe, claim, RunUpdate(events=[turn(claim, 3)])) == 0
    assert await write(pipe, replace(claim, fence="1:other"), ending(claim, 3)) == 0


async def test_artifacts_are_kept_with_the_last_write_and_read_by_name_and_version(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    latest = [Artifact(name="report.md", version=3, size=3), Artifact(name="résumé", version=1, size=0)]
    contents = {("report.md", 3): "new", ("report.md", 1): "öld", ("résumé", 1): ""}
    with pytest.raises(NotFound, match=r"has no artifact 'report.md'; it has none; they are kept when"):
        await store.artifact(claim.id, "report.md")
    last = replace(ending(claim, 2), artifacts=fields_of(latest, contents))
    assert [await write(pipe, claim, last) for _ in range(2)] == [1, 1]
    assert [await store.artifact(claim.id, "report.md", version) for version in (None, 3, 1)] == ["new", "new", "öld"]
    assert await store.artifact(claim.id, "résumé") == ""
    with pytest.raises(NotFound, match=r"version 2 of artifact 'report.md' .* is not kept; the latest is 3"):
        await store.artifact(claim.id, "report.md", 2)
    for unknown in ("report", "report.md/1", ""):
        with pytest.raises(NotFound, match=r"has no artifact .*; there are report.md, résumé"):
            await store.artifact(claim.id, unknown)
    with pytest.raises(NotFound, match="there is no delegation dlg_x"):
        await store.artifact("dlg_x", "report.md")
    assert 0 < await store.redis.ttl(artifacts_key(claim.id)) <= 60


async def test_a_worker_that_lost_its_fence_leaves_no_artifact(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    await store.redis.hset(record_key(claim.id), "fence", "2:other")
    assert await write(pipe, claim, RunUpdate(artifacts={"a": "1", "a/1": "text"})) == 0
    assert not await store.redis.exists(artifacts_key(claim.id))


async def test_renewing_tells_held_lost_cancelled_and_finished_apart(store: RunStore, pipe: Pipe) -> None:
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
            pass  # says only that something may have been missed
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
        found.append((again.attempt, again.lost, again.handed_over))
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


async def test_what_finished_is_pruned_with_every_key_and_nothing_else_is_touched(
    store: RunStore, pipe: Pipe, bus: Bus
) -> None:
    queued, running, done = await accepted(store), await claimed(store), await claimed(store)
    await write(pipe, done, RunUpdate(history=['{"role":"user"}'], ledger=[("call", "asked")], artifacts={"a": "1"}))
    await accepted(store, parent_id=done.id)
    await write(pipe, done, ending(done, 2))
    assert await store.redis.exists(*keys_of(done.id)) == len(keys_of(done.id))
    async with bus.listen(PRUNE) as asked:
        assert await store.prune(3600) == 0
        assert await store.redis.exists(*keys_of(done.id)) == len(keys_of(done.id))
        assert [await store.prune(0) for _ in range(2)] == [1, 0]
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
    assert await store.prune(0) == PAGE
    assert await store.redis.zcard(INDEX) == 0


async def test_the_key_of_a_pruned_delegation_does_not_start_it_again(store: RunStore) -> None:
    id = await accepted(store, idempotency_key="k")
    await store.cancel(id)
    await store.prune(0)
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


async def test_an_unknown_id_says_so(store: RunStore) -> None:
    for asked in (store.get("dlg_x"), store.events("dlg_x"), store.patch("dlg_x"), store.cancel("dlg_x")):
        with pytest.raises(NotFound, match="dlg_x"):
            await asked


async def test_listing_is_newest_first_filtered_and_paged(store: RunStore) -> None:
    ids = [await accepted(store, session_id="s", labels={"n": str(n % 2)}) for n in range(5)]
    await accepted(store, session_id="other")
    page = await store.list(status=Status.QUEUED, session="s", labels={"n": "0"}, limit=2, cursor=None)
    assert [item.id for item in page.items] == [ids[4], ids[2]]
    rest = await store.list(status=None, session="s", labels={"n": "0"}, limit=2, cursor=page.next_cursor)
    assert ([item.id for item in rest.items], rest.next_cursor) == ([ids[0]], None)


@pytest.mark.requirement("P-13")
async def test_a_late_follower_gets_every_event_once_and_in_order(store: RunStore, pipe: Pipe, bus: Bus) -> None:
    claim = await claimed(store)
    await write(pipe, claim, RunUpdate(events=[turn(claim, seq) for seq in range(2, 6)]))
    seen: list[int | None] = []

    watching = asyncio.create_task(note(follow(bus, store, claim.id, after=2), seen))
    await until(lambda: seen == [3, 4, 5])
    for seq in range(6, 9):
        await write(pipe, claim, RunUpdate(events=[turn(claim, seq)]))
    await write(pipe, claim, ending(claim, 9))
    await asyncio.wait_for(watching, 30)
    assert seen == [3, 4, 5, 6, 7, 8, 9]


async def test_a_follower_closes_a_gap_from_the_stream(store: RunStore, pipe: Pipe, bus: Bus) -> None:
    claim = await claimed(store)
    seen: list[int | None] = []

    watching = asyncio.create_task(note(follow(bus, store, claim.id), seen))
    await until(lambda: seen == [1])
    # Kept, but never published: what a lost pub/sub message looks like.
    await store.redis.xadd(f"deputize:run:{{{claim.id}}}:events", {"e": turn(claim, 2)[1]}, id="2-0")
    await store.redis.hset(record_key(claim.id), "seq", 2)
    await write(pipe, claim, ending(claim, 3))
    await asyncio.wait_for(watching, 30)
    assert seen == [1, 2, 3]
