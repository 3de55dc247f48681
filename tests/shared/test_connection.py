"""The pipe to Redis: what shares a round trip, what does not wait for one, and what is dropped."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import uvloop
from redis.exceptions import ConnectionError, ResponseError

from deputize.shared.background import RepeatedCause
from deputize.shared.connection import (
    PACE_SECONDS,
    Pipe,
    ScriptCall,
    _encoded,
    _Job,
    _settle,
    channel_in,
    connect,
    retried,
)
from deputize.shared.runs.keys import LEASES
from deputize.shared.runs.store import RENEW
from tests.waiting import until

TIMES = 20


@pytest.fixture
async def pipe(redis_url: str) -> AsyncIterator[Pipe]:
    """A pipe that is connected and has loaded its scripts."""
    async with connect(redis_url, timeout=None) as writing, Pipe(writing, [RENEW]) as pipe:
        await ask(pipe)
        yield pipe


def ask(pipe: Pipe) -> asyncio.Future[list[str]]:
    return pipe.script(RENEW, [LEASES], {"lease_ms": 1000, "runs": []})


async def reads(redis: Any) -> int:
    return (await redis.info("stats"))["total_reads_processed"]


async def test_what_is_asked_for_soon_after_a_round_trip_goes_out_together(pipe: Pipe, redis_url: str) -> None:
    async with connect(redis_url) as redis:
        before, begun = await reads(redis), time.perf_counter()
        asked: list[asyncio.Future[list[str]]] = []
        for _ in range(TIMES):
            asked.append(ask(pipe))
            await redis.ping()
        assert await asyncio.gather(*asked) == [[]] * TIMES
        paces = (time.perf_counter() - begun) / PACE_SECONDS  # on a busy machine the pings take longer than a pace
        assert await reads(redis) - before - TIMES <= paces + 2


async def test_who_waits_for_an_answer_is_not_kept_waiting_for_more(pipe: Pipe) -> None:
    async def took() -> float:
        begun = time.perf_counter()
        for _ in range(TIMES):
            asked = ask(pipe)
            pipe.flush()
            await asked
        return time.perf_counter() - begun

    assert min([await took() for _ in range(5)]) < TIMES * PACE_SECONDS / 2


class Answering:
    """A client, its pool and its connection in one: it answers every command with this."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.sent = b""
        self.connection_pool = self

    def get_connection_kwargs(self) -> dict[str, Any]:
        return {}

    async def get_connection(self) -> Answering:
        return self

    async def release(self, connection: Answering) -> None:
        pass

    async def send_packed_command(self, packed: bytes) -> None:
        self.sent += packed

    async def read_response(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_a_request_of_a_caller_that_left_has_no_answer_and_breaks_nothing(pipe: Pipe) -> None:
    left = ask(pipe)
    left.cancel()
    assert await ask(pipe) == []


async def test_scripts_that_a_server_has_forgotten_are_loaded_again(pipe: Pipe, redis_url: str) -> None:
    async with connect(redis_url) as redis:
        await redis.script_flush()
        assert await ask(pipe) == []


async def test_while_redis_is_away_commands_wait_and_frames_are_dropped() -> None:
    redis: Any = Answering(ConnectionError("away"))
    async with Pipe(redis, [RENEW]) as pipe:
        waiting = ask(pipe)
        pipe.publish("deputize:test", "before it is known")
        await until(lambda: pipe.away)
        pipe.publish("deputize:test", "afterwards")
        redis.answer = "OK"
        assert await asyncio.wait_for(waiting, 30) == "OK"
        pipe.publish("deputize:test", "again")
        await until(lambda: b"again" in redis.sent)
    assert redis.sent.count(b"PUBLISH") == 1


async def test_what_a_deferred_script_writes_can_grow_until_it_is_first_sent() -> None:
    redis: Any = Answering("OK")
    asked: list[str] = []

    def call(name: str) -> ScriptCall:
        asked.append(name)
        return [LEASES], {}, list(growing)

    growing = ["first"]
    async with Pipe(redis, [RENEW]) as pipe:
        await ask(pipe)
        redis.answer = ConnectionError("away")
        waiting = [pipe.deferred(RENEW, partial(call, "sent twice"))]
        growing.append("second")
        await until(lambda: pipe.away)
        growing.append("third")
        waiting.append(pipe.deferred(RENEW, partial(call, "sent once")))
        redis.answer = "OK"
        assert await asyncio.gather(*waiting) == ["OK", "OK"]
    assert asked == ["sent twice", "sent once"]
    _, sent_twice, sent_once = redis.sent.rsplit(b"EVALSHA", 2)
    assert (b"second" in sent_twice, b"third" in sent_twice, b"third" in sent_once) == (True, False, True)


async def test_a_pipe_that_ends_while_redis_is_away_leaves_no_waiter() -> None:
    redis: Any = Answering(ConnectionError("away"))
    async with Pipe(redis, [RENEW]) as pipe:
        waiting = ask(pipe)
    assert waiting.cancelled()


@pytest.mark.parametrize(("transient", "missed"), [(True, 0), (False, 1)])
async def test_the_refusal_of_a_frame_is_nobodys_to_hear(transient: bool, missed: int) -> None:
    unheard: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unheard.append(context))
    _settle(_Job((), transient, loop.create_future()), ResponseError("unknown command 'PUBLISH'"))
    gc.collect()
    assert len(unheard) == missed


async def test_a_question_is_repeated_until_redis_answers(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Any] = [*[ConnectionError("gone")] * 3, "there"]

    async def ask() -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    trouble = RepeatedCause("this is not known")
    with caplog.at_level("INFO"):
        assert await retried(ask, trouble) == "there"
        answers.append("there")
        assert await retried(ask, trouble) == "there"
    assert caplog.messages == ["this is not known; trying again", "recovered: this is not known"]
    answers += [ConnectionError("gone"), "there"]
    assert await retried(ask) == "there"
    assert len(caplog.messages) == 2


def test_a_connection_that_closes_between_two_commands_is_opened_again(redis_url: str) -> None:
    async def ping_twice() -> bool:
        async with connect(redis_url) as redis:
            await redis.ping()
            held: Any = await redis.connection_pool.get_connection()
            held._writer.transport.abort()
            with pytest.raises(ConnectionError):
                await held.send_command("PING")
            await redis.connection_pool.release(held)
            return await redis.ping()

    assert uvloop.run(ping_twice()) is True


async def test_a_connection_that_another_task_closes_during_a_command_has_an_error_of_redis(
    redis_url: str,
) -> None:
    async with connect(redis_url) as redis:
        held: Any = await redis.connection_pool.get_connection()
        sending = asyncio.ensure_future(held.send_command("PING"))
        await asyncio.sleep(0)
        await held.disconnect(nowait=True)
        with pytest.raises(ConnectionError, match="closed while this was sent"):
            await sending
        await redis.connection_pool.release(held)
        assert await redis.ping()


async def connections(redis: Any) -> int:
    return (await redis.info("clients"))["connected_clients"]


async def test_after_a_peak_connections_without_use_are_closed(redis_url: str) -> None:
    async with connect(redis_url) as redis, connect(redis_url) as looking:
        others = await connections(looking)
        await asyncio.gather(*(redis.ping() for _ in range(TIMES)))
        for _ in range(TIMES):
            await redis.ping()
        assert await connections(looking) == TIMES + others
        pool: Any = redis.connection_pool
        pool.idle_seconds = 0.0

        async def are_closed() -> bool:
            await redis.ping()
            return await connections(looking) == 1 + others

        await until(are_closed)
        assert await asyncio.gather(*(redis.ping() for _ in range(TIMES))) == [True] * TIMES


def test_a_script_publishes_on_the_channels_of_its_database() -> None:
    arguments = {"channel": "deputize:events", "id": "a"}
    assert json.loads(_encoded(arguments, 0)) == arguments
    assert json.loads(_encoded(arguments, 3)) == {"channel": channel_in(3, "deputize:events"), "id": "a"}
