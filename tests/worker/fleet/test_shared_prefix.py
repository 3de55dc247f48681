"""One delegation of the fleet writes a prefix into the prompt cache; the others wait until they can read it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field

import pytest
from fakeredis import FakeAsyncRedis, FakeServer

from deputize.shared.connection import Pipe
from deputize.shared.delegation import Usage
from deputize.shared.events import Event, ResumedWaiting, Waiting
from deputize.shared.runs.keys import prefix_key
from deputize.shared.runs.store import WRITING
from deputize.worker.fleet.gate import (
    DEFAULT_PRICE,
    WRITE_LEASE_SECONDS,
    PrefixWait,
    SharedPrefixes,
    is_worth_waiting,
)
from deputize.worker.models.base import Prefix, Price
from tests.waiting import until

CACHED = Usage(cache_write_tokens=20_000)


@dataclass
class Runner:
    """One run of a process: its requests, and what it published."""

    prefixes: SharedPrefixes
    events: list[Event] = field(default_factory=list[Event])
    idle: int = 0
    """How often its slot is free and its clock stopped."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its request may be sent."""
    reply: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the test: its reply begins."""

    def __post_init__(self) -> None:
        self.wait = PrefixWait(self.prefixes, self.events.append, self._idle)

    @contextmanager
    def _idle(self) -> Generator[None]:
        self.idle += 1
        yield
        self.idle -= 1

    async def run(self, *shared: Prefix, usage: Usage = CACHED, price: Price | None = None) -> None:
        async with self.wait.request("endpoint", lambda: shared, price, hour=False):
            self.wait.sends()
            self.ready.set()
            await self.reply.wait()
            self.wait.works(usage)

    def start(self, *shared: Prefix, price: Price | None = None) -> asyncio.Task[None]:
        self.ready.clear()
        return asyncio.create_task(self.run(*shared, price=price))

    @property
    def waits(self) -> bool:
        return self.idle == 1 and not self.ready.is_set()


SYSTEM, CONTEXT, OTHER = Prefix("system", 8_000), Prefix("context", 20_000), Prefix("other context", 20_000)


@dataclass
class Fleet:
    processes: list[SharedPrefixes]
    redis: FakeAsyncRedis
    seconds: float = 0.0
    """The clock of the second process."""

    def runner(self, process: int = 0) -> Runner:
        return Runner(self.processes[process])


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """Two worker processes over one Redis."""
    server = FakeServer()
    async with AsyncExitStack() as opened:
        clients = [FakeAsyncRedis(server=server, decode_responses=True) for _ in range(3)]
        for client in clients:
            opened.push_async_callback(client.aclose)
        pipes = [await opened.enter_async_context(Pipe(client, WRITING)) for client in clients[:2]]
        fleet = Fleet([SharedPrefixes(pipes[0]), SharedPrefixes(pipes[1], lambda: fleet.seconds)], clients[2])
        yield fleet


async def finished(*tasks: asyncio.Task[None]) -> None:
    async with asyncio.timeout(20):
        await asyncio.gather(*tasks)


async def test_the_others_wait_until_the_writers_reply_begins(fleet: Fleet) -> None:
    first, second, elsewhere = fleet.runner(), fleet.runner(), fleet.runner(1)
    tasks = [first.start(SYSTEM, CONTEXT)]
    await first.ready.wait()
    tasks += [other.start(SYSTEM, CONTEXT) for other in (second, elsewhere)]
    await until(lambda: second.waits and elsewhere.waits)
    assert first.events == []
    first.reply.set()
    await second.ready.wait()
    await elsewhere.ready.wait()
    for other in (second, elsewhere):
        assert list(map(type, other.events)) == [Waiting, ResumedWaiting]
        waiting, resumed = other.events
        assert isinstance(waiting, Waiting)
        assert isinstance(resumed, ResumedWaiting)
        assert waiting.why == "shared_prefix"
        assert "8,000 tokens" in waiting.detail
        assert 0 < resumed.seconds < 20
        assert other.idle == 0
        other.reply.set()
    await finished(*tasks)


async def test_the_writer_of_tools_and_system_is_waited_for_whatever_the_context(fleet: Fleet) -> None:
    first, second = fleet.runner(), fleet.runner(1)
    tasks = [first.start(SYSTEM, CONTEXT)]
    await first.ready.wait()
    tasks.append(second.start(SYSTEM, OTHER))
    await until(lambda: second.waits)
    first.reply.set()
    await second.ready.wait()
    second.reply.set()
    await finished(*tasks)


async def test_another_prefix_waits_for_nothing(fleet: Fleet) -> None:
    first, second = fleet.runner(), fleet.runner()
    tasks = [first.start(CONTEXT), second.start(OTHER)]
    await first.ready.wait()
    await second.ready.wait()
    assert second.events == []
    first.reply.set()
    second.reply.set()
    await finished(*tasks)


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_when_the_writer_ends_without_a_reply_the_next_one_writes(fleet: Fleet, how: str) -> None:
    first, second, third = fleet.runner(), fleet.runner(1), fleet.runner(1)
    writing = first.start(CONTEXT)
    await first.ready.wait()
    tasks = [second.start(CONTEXT), third.start(CONTEXT)]
    await until(lambda: second.waits and third.waits)
    if how == "fails":
        first.wait.failed()
    else:
        writing.cancel()
    await until(lambda: second.ready.is_set() or third.ready.is_set())
    assert second.idle + third.idle == 1, "only one of them writes"
    for runner in (first, second, third):
        runner.reply.set()
    await asyncio.gather(writing, *tasks, return_exceptions=True)


async def test_a_run_that_stops_waiting_frees_nothing(fleet: Fleet) -> None:
    first, second, third = fleet.runner(), fleet.runner(1), fleet.runner(1)
    tasks = [first.start(CONTEXT)]
    await first.ready.wait()
    waiting = second.start(CONTEXT)
    await until(lambda: second.waits)
    waiting.cancel()
    await asyncio.wait([waiting])
    tasks.append(third.start(CONTEXT))
    await until(lambda: third.waits or third.ready.is_set())
    assert third.waits
    for runner in (first, third):
        runner.reply.set()
    await finished(*tasks)


async def test_a_lost_writer_delays_the_others_by_one_lease(fleet: Fleet) -> None:
    first, second = fleet.runner(), fleet.runner(1)
    writing = first.start(CONTEXT)
    await first.ready.wait()
    assert await fleet.redis.hget(prefix_key(CONTEXT.key), "writer")
    renewing = next(task for task in asyncio.all_tasks() if task.get_name() == f"renewing {prefix_key(CONTEXT.key)}")
    renewing.cancel()  # as after kill -9: nothing is renewed, nothing given up
    begun = asyncio.get_running_loop().time()
    waiting = second.start(CONTEXT)
    await second.ready.wait()
    assert asyncio.get_running_loop().time() - begun < WRITE_LEASE_SECONDS + 1
    first.reply.set()
    second.reply.set()
    await finished(writing, waiting)


async def test_a_writer_that_lives_is_waited_for_beyond_its_lease(fleet: Fleet) -> None:
    first, second = fleet.runner(), fleet.runner(1)
    writing = first.start(CONTEXT)
    await first.ready.wait()
    waiting = second.start(CONTEXT)
    await until(lambda: second.waits)
    alive = int(await fleet.redis.hget(prefix_key(CONTEXT.key), "alive") or 0)

    async def renewed() -> bool:
        return int(await fleet.redis.hget(prefix_key(CONTEXT.key), "alive") or 0) > alive + WRITE_LEASE_SECONDS * 1000

    await until(renewed)
    assert second.waits
    first.reply.set()
    await second.ready.wait()
    second.reply.set()
    await finished(writing, waiting)


async def test_waiting_ends_after_twice_the_usual_time_and_a_lease(fleet: Fleet) -> None:
    fleet.processes[1].note_first_event("endpoint", 0.1)
    first, second = fleet.runner(), fleet.runner(1)
    writing = first.start(CONTEXT)
    await first.ready.wait()
    waiting = second.start(CONTEXT)
    await second.ready.wait()
    assert list(map(type, second.events)) == [Waiting, ResumedWaiting]
    assert isinstance(second.events[1], ResumedWaiting)
    assert WRITE_LEASE_SECONDS <= second.events[1].seconds < WRITE_LEASE_SECONDS + 5
    first.reply.set()
    second.reply.set()
    await finished(writing, waiting)


async def test_only_the_first_request_of_a_run_waits(fleet: Fleet) -> None:
    first, second = fleet.runner(), fleet.runner(1)
    second.reply.set()
    await second.run(CONTEXT)
    second.reply.clear()
    fleet.seconds = 61  # the process looks into Redis again
    await fleet.redis.flushall()
    writing = first.start(CONTEXT)
    await first.ready.wait()
    later = second.start(CONTEXT)
    await second.ready.wait()
    assert second.events == []
    first.reply.set()
    second.reply.set()
    await finished(writing, later)


async def test_a_prefix_that_was_used_lately_costs_no_question(fleet: Fleet) -> None:
    first, second = fleet.runner(), fleet.runner()
    first.reply.set()
    await first.run(SYSTEM, CONTEXT)
    await fleet.redis.flushall()
    second.reply.set()
    await second.run(SYSTEM, CONTEXT)
    assert await fleet.redis.keys() == []


async def test_what_is_written_is_forgotten_before_the_endpoint_forgets_it(fleet: Fleet) -> None:
    first = fleet.runner()
    first.reply.set()
    await first.run(CONTEXT)

    async def kept() -> bool:
        return 200_000 < await fleet.redis.pttl(prefix_key(CONTEXT.key)) <= 270_000

    await until(kept)


async def test_at_an_endpoint_without_a_cache_the_others_wait_once_an_hour(fleet: Fleet) -> None:
    first = fleet.runner()
    first.reply.set()
    await first.run(CONTEXT, usage=Usage(input_tokens=20_000))

    async def kept() -> bool:
        return await fleet.redis.pttl(prefix_key(CONTEXT.key)) > 3_000_000

    await until(kept)


@pytest.mark.parametrize(
    ("tokens", "price", "seconds", "worth"),
    [
        (20_000, DEFAULT_PRICE, 2.0, True),
        (1_024, DEFAULT_PRICE, 2.0, True),
        (1_024, DEFAULT_PRICE, 10.0, False),
        (4_096, Price(0.1, 0.5, 0.01, 0.125), 2.0, False),
        (20_000, DEFAULT_PRICE, None, True),
        (1_024, DEFAULT_PRICE, None, False),
        (1_000_000, Price(0, 0, 0, 0), 0.1, False),
    ],
)
def test_waiting_is_worth_it_by_size_price_and_time(
    tokens: int, price: Price, seconds: float | None, worth: bool
) -> None:
    assert is_worth_waiting(Prefix("x", tokens), price, seconds) is worth


async def test_nothing_waits_where_waiting_costs_more_than_it_saves(fleet: Fleet) -> None:
    first, second = fleet.runner(), fleet.runner(1)
    cheap = Price(0.1, 0.5, 0.01, 0.125)
    writing = first.start(SYSTEM)
    await first.ready.wait()
    other = second.start(SYSTEM, price=cheap)
    await second.ready.wait()
    assert second.events == []
    first.reply.set()
    second.reply.set()
    await finished(writing, other)
