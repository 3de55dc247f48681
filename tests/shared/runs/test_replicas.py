"""Writes that replicas must have before they count, and a failover that loses some: with real servers."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from redis.exceptions import ResponseError

from deputize.shared.background import beside
from deputize.shared.connection import Pipe, connect
from deputize.shared.ids import new_id
from deputize.shared.metrics import STORE_LOSSES
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import ACKNOWLEDGED, LEASES, METRICS, record_key
from deputize.shared.runs.losses import losses_of
from deputize.shared.runs.record import DOUBT, Claim
from deputize.shared.runs.replicas import ACKNOWLEDGE, Replicas, ReplicatedPipe, Unacknowledged, pipe_of
from deputize.shared.runs.store import RECORD, WRITING, RunStore
from deputize.shared.wire import now
from deputize.worker.core.emit import RunUpdate
from deputize.worker.redis_record import script_call
from tests.processes.redis_server import RedisProcess
from tests.processes.replication import Replicated
from tests.waiting import until

SECONDS = 1000.0
two_replicas = pytest.mark.parametrize("replicated", [2], indirect=True)


@asynccontextmanager
async def opened(url: str, replicas: Replicas, seconds: float = 60) -> AsyncGenerator[tuple[RunStore, ReplicatedPipe]]:
    """A process with its connections."""
    async with (
        connect(url) as redis,
        connect(url, timeout=None) as writing,
        ReplicatedPipe(writing, WRITING, replicas, seconds) as pipe,
    ):
        yield RunStore(redis, 60, replicas), pipe


async def accepted(store: RunStore, **fields: Any) -> str:
    request = DelegationRequest(task="do it", **fields)
    return (await store.accept([(new_id(), request, request.limits)], SECONDS))[0].id


async def claimed(store: RunStore) -> Claim:
    claim = await store.claim(await accepted(store), "token", "worker-1", SECONDS)
    assert claim is not None
    return claim


def write(pipe: Pipe, claim: Claim, number: int, *, lasts: bool = True) -> asyncio.Future[Any]:
    """Writes the run's update of that number."""
    update = RunUpdate(number=number, fields={"status": "running"}, history=[f"message {number}"])
    done = pipe.deferred(RECORD, partial(script_call, update, claim.id, claim.fence), lasts=lambda: lasts)
    pipe.flush()
    return done


async def test_without_replicas_a_pipe_is_an_ordinary_one(redis_url: str) -> None:
    async with connect(redis_url) as redis:
        assert type(pipe_of(redis, WRITING, None)) is Pipe


async def test_what_a_replica_has_is_accepted(replicated: Replicated) -> None:
    async with opened(replicated.url, Replicas(1)) as (store, _):
        id = await accepted(store)
        assert replicated.replicas[0].client.exists(record_key(id))


async def test_what_no_replica_has_is_not_accepted_in_time(replicated: Replicated) -> None:
    replicated.replicas[0].lag()
    async with opened(replicated.url, Replicas(1, 0.1)) as (store, _):
        with pytest.raises(Unacknowledged, match="0 of 1 replicas of Redis acknowledge writes; try again"):
            await accepted(store)


async def test_a_repeated_request_is_answered_when_replicas_have_the_first_one(replicated: Replicated) -> None:
    replicated.replicas[0].lag()
    request = DelegationRequest(task="do it", idempotency_key="k")
    async with opened(replicated.url, Replicas(1, 0.1)) as (store, _):
        for _ in range(2):  # the second one writes nothing itself
            with pytest.raises(Unacknowledged):
                await store.accept([(new_id(), request, request.limits)], SECONDS)
        replicated.replicas[0].follow(replicated.primary)
        (answer,) = await store.accept([(new_id(), request, request.limits)], SECONDS)
        assert answer.replayed


async def test_only_a_write_that_is_to_last_waits_for_replicas(replicated: Replicated) -> None:
    async with opened(replicated.url, Replicas(1)) as (store, pipe):
        claim = await claimed(store)
        replicated.replicas[0].lag()
        lasting = write(pipe, claim, 1)
        for number in range(2, 5):
            assert await write(pipe, claim, number, lasts=False) == "written"
        assert not lasting.done()
        replicated.replicas[0].follow(replicated.primary)
        assert await lasting == "written"
        assert await store.redis.lrange(f"{record_key(claim.id)}:history", 0, -1) == [
            f"message {number}" for number in range(1, 5)
        ]


async def test_a_write_that_no_replica_gets_fails_in_the_end(replicated: Replicated) -> None:
    async with opened(replicated.url, Replicas(1), seconds=0.2) as (store, pipe):
        claim = await claimed(store)
        replicated.replicas[0].lag()
        with pytest.raises(Unacknowledged):
            await write(pipe, claim, 1)
        assert await write(pipe, claim, 2, lasts=False) == "written"


async def test_a_write_that_is_there_already_waits_on_a_new_connection_too(replicated: Replicated) -> None:
    """The script changes nothing then, and Redis does not wait for a connection that has written nothing."""
    async with opened(replicated.url, Replicas(1), seconds=0.5) as (store, pipe):
        claim = await claimed(store)
        replicated.replicas[0].process.send_signal(signal.SIGSTOP)
        lasting = write(pipe, claim, 1)
        await until(lambda: replicated.primary.client.hget(record_key(claim.id), "write") is not None)
        replicated.primary.client.client_kill_filter(_type="normal", skipme=True)
        with pytest.raises(Unacknowledged):
            await lasting


async def test_a_promoted_replica_with_all_that_it_acknowledged_raises_no_alarm(replicated: Replicated) -> None:
    replicas = Replicas(1)
    async with opened(replicated.url, replicas) as (store, pipe):
        claim = await claimed(store)
        await write(pipe, claim, 1)
        replicated.fail_over(replicated.replicas[0])
        assert await write(pipe, claim, 2, lasts=False) == "written"
        assert await store.redis.hget(METRICS, STORE_LOSSES.field("acknowledgement")) is None
        assert await store.redis.hget(record_key(claim.id), DOUBT) is None


async def test_a_server_that_starts_again_with_its_log_raises_no_alarm(replicated: Replicated) -> None:
    async with opened(replicated.url, Replicas(1)) as (store, pipe):
        claim = await claimed(store)
        await write(pipe, claim, 1)
        replicated.primary.kill()
        replicated.primary.start()
        assert await write(pipe, claim, 2, lasts=False) == "written"
        assert await store.redis.hget(record_key(claim.id), DOUBT) is None


@two_replicas
async def test_a_promotion_that_loses_acknowledged_writes_is_known(
    replicated: Replicated, caplog: pytest.LogCaptureFixture
) -> None:
    behind = replicated.replicas[1]
    async with opened(replicated.url, Replicas(1)) as (store, pipe):
        claim, waiting = await claimed(store), await accepted(store)
        await write(pipe, claim, 1)
        await until(lambda: behind.client.exists(record_key(waiting)))
        behind.lag()
        lost = await accepted(store)
        await write(pipe, claim, 2)
        replicated.fail_over(behind)
        with caplog.at_level(logging.ERROR):
            assert await write(pipe, claim, 3, lasts=False) == "fenced"
        assert await store.redis.hmget(
            METRICS, [STORE_LOSSES.field(each) for each in ("acknowledgement", "delegation")]
        ) == [
            "1",
            "1",
        ]
        for id in (claim.id, waiting):  # of the second one a claim may be lost
            assert await store.redis.hget(record_key(id), DOUBT) == "1"
        assert "Redis has lost 2 writes" in caplog.text
        (loss,) = await losses_of(store.redis)
        assert (loss.writes, loss.doubted, loss.delegations) == (2, 2, 1)
        assert loss.at
        assert 0 <= (now() - loss.at).total_seconds() < 60
        assert f"the accepted delegation of {record_key(lost)} is lost" in caplog.text


async def test_a_loss_is_looked_for_again_when_redis_answers_again(
    redis_process: RedisProcess, caplog: pytest.LogCaptureFixture
) -> None:
    replicas = Replicas(1, history="of another server", number=2)
    async with connect(redis_process.url) as redis:
        redis_process.kill()
        async with beside(replicas.watch(redis), "the look"):
            await until(lambda: "does not know whether Redis has lost writes" in caplog.text)
            redis_process.start()
            await until(lambda: "Redis has lost 2 writes" in caplog.text)


async def test_a_loss_that_one_process_finds_twice_is_logged_once(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    replicas = Replicas(1, history="of another server", number=2)
    async with connect(redis_url) as redis:
        await asyncio.gather(*(replicas.report(["history", 0, 0], redis) for _ in range(2)))
    assert caplog.text.count("Redis has lost 2 writes") == 1


@two_replicas
async def test_a_loss_that_several_processes_find_counts_once(replicated: Replicated) -> None:
    behind = replicated.replicas[1]
    async with opened(replicated.url, Replicas(1)) as one, opened(replicated.url, Replicas(1, 0.1)) as other:
        claim = await claimed(one[0])
        await until(lambda: behind.client.exists(record_key(claim.id)))
        behind.lag()
        await write(one[1], claim, 1)
        await accepted(other[0])
        replicated.fail_over(behind)
        await write(one[1], claim, 2, lasts=False)
        assert await one[0].redis.hdel(record_key(claim.id), DOUBT)  # as when its run has begun anew
        with pytest.raises(Unacknowledged):
            await accepted(other[0])
        assert await one[0].redis.hget(METRICS, STORE_LOSSES.field("acknowledgement")) == "1"
        assert await one[0].redis.hget(record_key(claim.id), DOUBT) is None


async def test_a_loss_that_an_older_version_has_found_is_listed_last(redis_url: str) -> None:
    async with connect(redis_url) as redis:
        kept: dict[Any, Any] = {"lost:1": "2", "lost:3": '{"at":5,"writes":7,"doubted":0}', "gone:1": "4", "2": "9"}
        await redis.hset(ACKNOWLEDGED, mapping=kept)
        await redis.expire(ACKNOWLEDGED, 60)
        newer, older = await losses_of(redis)
        assert (newer.writes, newer.delegations, older.at, older.delegations) == (7, 0, None, 4)


async def test_a_count_is_kept_for_each_history(replicated: Replicated) -> None:
    async with opened(replicated.url, Replicas(1)) as (store, _):
        await accepted(store)
        await accepted(store)
        (history, number), *others = (await store.redis.hgetall(ACKNOWLEDGED)).items()
        assert (len(history), number, others) == (40, "2", [])
        assert await store.redis.zcard(LEASES) == 2


async def test_an_older_count_changes_nothing_that_is_known() -> None:
    replicas = Replicas(0)
    for number in (5, 3):
        assert replicas.note(["history", number, -1], 0)
    assert (replicas.history, replicas.number) == ("history", 5)


async def test_an_error_of_the_script_is_not_an_acknowledgement(redis_url: str) -> None:
    async with connect(redis_url) as redis:
        with pytest.raises(ResponseError):
            await Replicas(0).run(redis, ACKNOWLEDGE, [], {})


async def test_a_run_waits_for_replicas_beyond_the_time_of_a_caller(replicated: Replicated) -> None:
    replicated.replicas[0].lag()
    replicas = Replicas(1, 0.05)
    async with connect(replicated.url) as redis:
        keys, arguments, _ = replicas.call(adds=True)
        waiting = asyncio.create_task(replicas.run(redis, ACKNOWLEDGE, keys, arguments, unbounded=True))
        tried = replicated.primary.client
        await until(lambda: tried.info("commandstats").get("cmdstat_wait", {}).get("calls", 0) >= 2)
        assert not waiting.done()
        replicated.replicas[0].follow(replicated.primary)
        assert await waiting


async def test_a_write_that_is_given_up_or_wrong_leaves_the_others_alone(redis_url: str) -> None:
    async with connect(redis_url) as redis, connect(redis_url, timeout=None) as writing:
        claim = await claimed(RunStore(redis, 60))
        async with ReplicatedPipe(writing, WRITING, Replicas(0), 60) as pipe:
            given_up = write(pipe, claim, 1)
            given_up.cancel()
            wrong = pipe.deferred(RECORD, lambda: ([], {}, ()))
            pipe.flush()
            with pytest.raises(ResponseError):
                await wrong
            assert await write(pipe, claim, 2) == "written"


async def test_a_count_that_cannot_be_made_is_no_acknowledgement(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(redis_url) as redis, connect(redis_url, timeout=None) as writing:
        claim = await claimed(RunStore(redis, 60))
        async with ReplicatedPipe(writing, WRITING, Replicas(0), 60) as pipe:
            assert await write(pipe, claim, 1) == "written"
            await redis.rename(ACKNOWLEDGED, "deputize:test")
            await redis.set(ACKNOWLEDGED, "another type", ex=60)
            lasting = write(pipe, claim, 2)
            await until(lambda: caplog.text.count("Redis does not take this write") > 1, 20)
            assert not lasting.done()
            await redis.rename("deputize:test", ACKNOWLEDGED)
            assert await lasting == "written"


async def test_a_write_that_a_closed_pipe_has_not_sent_is_cancelled(redis_process: RedisProcess) -> None:
    url = redis_process.url
    async with connect(url) as redis, connect(url, timeout=None) as writing:
        claim = await claimed(RunStore(redis, 60))
        async with ReplicatedPipe(writing, WRITING, Replicas(0), 60) as pipe:
            redis_process.process.send_signal(signal.SIGSTOP)
            left = write(pipe, claim, 1)
        await asyncio.wait([left], timeout=5)
        redis_process.process.send_signal(signal.SIGCONT)
        assert left.cancelled()
