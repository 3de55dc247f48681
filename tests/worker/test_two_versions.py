"""Two versions side by side, as during an upgrade: what one of them does not know does no harm.

The newer one is played by what it would have stored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.delegations import Delegations, open_service
from deputize.shared.events import Envelope
from deputize.shared.request import After, DelegationRequest
from deputize.shared.runs.keys import EVENTS, LEASES, channel, events_key, record_key
from deputize.shared.runs.upstreams import settle
from deputize.worker.task import carry_out
from tests.runs.bench import Bench, say, script
from tests.waiting import until

NOVELTY: dict[str, Any] = {"seq": 2, "at": "2026-11-26T12:00:00Z", "attempt": 0, "type": "novelty"}


@pytest.fixture
async def service(bench: Bench, redis_url: str) -> AsyncIterator[Delegations]:
    async with open_service(bench.settings, redis_url) as service:
        yield service


@pytest.fixture
async def id(bench: Bench, tmp_path: Path) -> str:
    return await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, [say("done")])))


async def asks_for(bench: Bench, id: str, **fields: Any) -> dict[str, Any]:
    """Gives a stored request these fields, in its event, too; returns it as it was."""
    redis, key = bench.store.redis, record_key(id)
    asked = json.loads(await redis.hget(key, "request"))
    await redis.hset(key, "request", json.dumps(asked | fields))
    ((number, entry),) = await redis.xrange(events_key(id))
    event = json.loads(entry["e"])
    await redis.delete(events_key(id))
    await redis.xadd(events_key(id), {"e": json.dumps(event | {"request": asked | fields})}, id=number)
    return asked


@pytest.mark.parametrize("fields", [{"novelty": True}, {"approvalMode": "novel"}], ids=repr)
async def test_a_worker_leaves_what_it_cannot_read_to_a_newer_one(
    bench: Bench, id: str, fields: dict[str, Any]
) -> None:
    asked = await asks_for(bench, id, **fields)
    redis, key = bench.store.redis, record_key(id)
    for _ in range(4):  # a run ends that has lost three workers
        assert await carry_out(bench.services, id) is None
        assert await redis.hmget(key, ["status", "attempt", "fence", "lost", "ended"]) == [
            "queued",
            "0",
            "",
            None,
            None,
        ]
        assert await redis.zscore(LEASES, id) is not None
    await redis.hset(key, "request", json.dumps(asked))  # a newer worker can read it
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.summary, result.attempts) == ("done", 1)


async def test_it_is_asked_for_again_until_there_is_one(bench: Bench, id: str) -> None:
    await asks_for(bench, id, novelty=True)
    await carry_out(bench.services, id)
    await bench.store.redis.zadd(LEASES, {id: 1})
    await bench.requeue(id)


async def test_the_service_shows_delegations_of_a_newer_one(bench: Bench, service: Delegations, id: str) -> None:
    await asks_for(bench, id, novelty=True, limits={"maxTurns": 7, "maxNovelties": 1})
    assert (await service.get(id)).request.limits.max_turns == 7
    assert [each.id for each in (await service.list()).items] == [id]
    assert [each.event.type for each in await service.events(id)] == ["run_queued"]
    assert (await service.cancel(id)).status == "cancelled"


async def test_events_of_a_newer_worker_are_passed_over(bench: Bench, service: Delegations, id: str) -> None:
    redis, event = bench.store.redis, json.dumps(NOVELTY | {"delegationId": id})
    seen: list[Envelope] = []

    async def follow() -> None:
        async for envelope in service.follow(id):
            seen.append(envelope)

    following = asyncio.create_task(follow())
    await until(lambda: seen)
    await redis.xadd(events_key(id), {"e": event}, id="2-0")
    await redis.hset(record_key(id), "seq", 2)
    for name in (channel(id), EVENTS):
        await redis.publish(name, event)
    await carry_out(bench.services, id)
    await following
    numbers = [envelope.seq for envelope in seen if envelope.seq]
    assert numbers == [1, *range(3, len(numbers) + 2)]
    assert numbers == [envelope.seq for envelope in await service.events(id)]
    assert seen[-1].event.type == "run_finished"


async def test_what_waits_for_others_is_settled_by_a_janitor_of_either_version(bench: Bench, id: str) -> None:
    waiting = await bench.accept(DelegationRequest(task="then", after=[After(id=id)]))
    await asks_for(bench, waiting, novelty=True)
    await carry_out(bench.services, id)
    assert await settle(bench.store, waiting)
