"""What an attempt writes, and how it is followed: asked of a real Redis and of fakeredis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from deputize.shared.bus import Bus, follow
from deputize.shared.connection import Pipe
from deputize.shared.delegation import Artifact, Status
from deputize.shared.errors import NotFound
from deputize.shared.events import Envelope
from deputize.shared.runs.keys import artifacts_key, record_key
from deputize.shared.runs.record import fields_of
from deputize.shared.runs.store import RunStore
from deputize.worker.core.emit import RunUpdate
from tests.contracts.store.records import claimed, ending, turn, write
from tests.waiting import until


async def note(events: AsyncIterator[Envelope], seen: list[int | None]) -> None:
    async for envelope in events:
        seen.append(envelope.seq)


@pytest.mark.requirement("P-13")
async def test_a_write_that_is_sent_twice_is_kept_once(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    writing = RunUpdate(events=[turn(claim, 2), turn(claim, 3)], history=['{"role":"user"}'])
    assert [await write(pipe, claim, writing) for _ in range(2)] == [1, 1]
    assert [event.seq for event in await store.events(claim.id)] == [1, 2, 3]
    assert await store.redis.llen(f"deputize:run:{{{claim.id}}}:history") == 1


async def test_a_worker_that_lost_its_fence_writes_nothing(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    await store.redis.hset(record_key(claim.id), "fence", "2:other")
    assert await write(pipe, claim, RunUpdate(events=[turn(claim, 2)], fields={"status": "failed"})) == 0
    assert [event.seq for event in await store.events(claim.id)] == [1]
    assert (await store.get(claim.id)).status is Status.RUNNING


async def test_the_last_write_ends_the_run_and_lets_every_key_expire(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    await write(pipe, claim, RunUpdate(history=['{"role":"user"}']))
    assert await write(pipe, claim, ending(claim, 2), 2) == 1
    keys = [key async for key in store.redis.scan_iter("deputize:run:*")]
    assert len(keys) == 3
    assert all([0 < await store.redis.ttl(key) <= 60 for key in keys])
    assert await store.redis.zcard("deputize:leases") == 0


async def test_the_last_write_sent_twice_is_confirmed_twice(store: RunStore, pipe: Pipe) -> None:
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
        with pytest.raises(NotFound, match=r"has no artifact .*; it has report.md, résumé"):
            await store.artifact(claim.id, unknown)
    with pytest.raises(NotFound, match="there is no delegation dlg_x"):
        await store.artifact("dlg_x", "report.md")
    assert 0 < await store.redis.ttl(artifacts_key(claim.id)) <= 60


async def test_a_worker_that_lost_its_fence_leaves_no_artifact(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store)
    await store.redis.hset(record_key(claim.id), "fence", "2:other")
    assert await write(pipe, claim, RunUpdate(artifacts={"a": "1", "a/1": "text"})) == 0
    assert not await store.redis.exists(artifacts_key(claim.id))


@pytest.mark.requirement("P-13")
async def test_a_late_follower_gets_every_event_once_and_in_order(store: RunStore, pipe: Pipe, bus: Bus) -> None:
    claim = await claimed(store)
    await write(pipe, claim, RunUpdate(events=[turn(claim, seq) for seq in range(2, 6)]))
    seen: list[int | None] = []

    watching = asyncio.create_task(note(follow(bus, store, claim.id, after=2), seen))
    await until(lambda: seen == [3, 4, 5])
    for seq in range(6, 9):
        await write(pipe, claim, RunUpdate(events=[turn(claim, seq)]), seq - 4)
    await write(pipe, claim, ending(claim, 9), 5)
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
