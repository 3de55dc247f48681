"""Following events: what is lost is fetched, what comes again is passed over, and every channel hears its share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvloop
from fakeredis import FakeAsyncRedis, FakeServer

from deputize.shared.bus import DEPTH, Bus, Listener, follow, follow_all
from deputize.shared.connection import Pipe, connect
from deputize.shared.events import AnyEvent, Envelope, Heartbeat, TurnStarted
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import EVENTS, channel, events_key, record_key
from deputize.shared.runs.store import RECORD, WRITING, RunStore
from deputize.shared.wire import now
from deputize.worker.core.emit import RunUpdate
from deputize.worker.redis_record import script_call
from tests.waiting import until

NEVER = 3600.0


class Desk:
    """One delegation, and every event that it can have."""

    def __init__(self, store: RunStore, bus: Bus, pipe: Pipe) -> None:
        self.store, self.bus, self.pipe = store, bus, pipe
        self.id = new_id()
        self.seen: list[int | None] = []

    async def accept(self) -> None:
        request = DelegationRequest(task="do it")
        await self.store.accept([(self.id, request, request.limits)], 30)

    def envelope(self, seq: int | None) -> str:
        event: AnyEvent = TurnStarted(turn=seq) if seq else Heartbeat(turn=1, tool_calls=0, elapsed_ms=5)
        return Envelope(delegation_id=self.id, seq=seq, at=now(), attempt=1, event=event).to_json()

    async def publish(self, seq: int | None) -> int:
        """Returns the number of those who heard it."""
        return await self.store.redis.publish(channel(self.id), self.envelope(seq))

    async def keep(self, seq: int) -> None:
        """Keeps an event without publishing it: what a lost message looks like."""
        await self.store.redis.xadd(events_key(self.id), {"e": self.envelope(seq)}, id=f"{seq}-0")
        await self.store.redis.hset(record_key(self.id), "seq", seq)

    def follow(self, after: int = 0, recheck: float = NEVER) -> asyncio.Task[None]:
        async def note() -> None:
            async for envelope in follow(self.bus, self.store, self.id, after, recheck):
                self.seen.append(envelope.seq)

        return asyncio.create_task(note())


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    server = FakeServer()
    clients = [FakeAsyncRedis(server=server, decode_responses=True) for _ in range(3)]
    async with Bus(clients[0]) as bus, Pipe(clients[1], WRITING) as pipe:
        yield Desk(RunStore(clients[2], 60), bus, pipe)
    for client in clients:
        await client.aclose()


@pytest.mark.requirement("P-13")
async def test_an_event_that_comes_again_is_passed_over(desk: Desk) -> None:
    """One that happens between the subscription and the first look at the kept ones comes twice to every follower."""
    await desk.accept()
    following = desk.follow()
    await until(lambda: desk.seen == [1])
    await desk.keep(2)
    for seq in (1, 2, 2, 1):
        await desk.publish(seq)
    await desk.store.cancel(desk.id)
    await asyncio.wait_for(following, 30)
    assert desk.seen == [1, 2, 3]


async def test_a_follower_that_begins_later_does_not_receive_what_it_has_seen(desk: Desk) -> None:
    await desk.accept()
    await desk.keep(2)
    following = desk.follow(after=2)
    await until(lambda: desk.publish(2))
    await desk.publish(1)
    await desk.store.cancel(desk.id)
    await asyncio.wait_for(following, 30)
    assert desk.seen == [3]


@pytest.mark.requirement("P-13")
async def test_a_frame_without_a_number_comes_once_and_repeats_nothing(desk: Desk) -> None:
    await desk.accept()
    following = desk.follow()
    await until(lambda: desk.seen == [1])
    await desk.publish(None)
    await until(lambda: desk.seen == [1, None])
    await desk.store.cancel(desk.id)
    await asyncio.wait_for(following, 30)
    assert desk.seen == [1, None, 2]


@pytest.mark.requirement("P-13")
async def test_the_last_event_is_found_even_if_its_message_was_lost(desk: Desk) -> None:
    await desk.accept()
    following = desk.follow(recheck=0.05)
    await until(lambda: desk.seen == [1])
    await desk.keep(2)
    await until(lambda: desk.seen == [1, 2])
    following.cancel()
    await asyncio.wait({following})


async def test_an_event_is_parsed_once_for_all_its_followers(desk: Desk) -> None:
    await desk.accept()
    followers = [follow(desk.bus, desk.store, desk.id, recheck=NEVER) for _ in range(2)]
    for follower in followers:
        await anext(follower)
    coming = asyncio.gather(*map(anext, followers))
    await until(lambda: desk.publish(None))
    one, other = await asyncio.wait_for(coming, 30)
    assert one is other
    assert isinstance(one.event, Heartbeat)
    for follower in followers:
        await follower.aclose()


@pytest.mark.requirement("P-13")
async def test_a_follower_that_does_not_keep_up_gets_every_event_once(desk: Desk) -> None:
    await desk.accept()
    slow = follow(desk.bus, desk.store, desk.id, recheck=NEVER)
    assert (await anext(slow)).seq == 1
    last = DEPTH + 10
    async with desk.store.redis.pipeline(transaction=False) as pipeline:
        for seq in range(2, last + 1):
            pipeline.xadd(events_key(desk.id), {"e": desk.envelope(seq)}, id=f"{seq}-0")
            pipeline.publish(channel(desk.id), desk.envelope(seq))
        await pipeline.hset(record_key(desk.id), "seq", last).execute()
    await desk.store.cancel(desk.id)
    async with asyncio.timeout(30):
        assert [envelope.seq async for envelope in slow] == [*range(2, last + 2)]


async def heard(listener: Listener) -> str:
    while (message := await asyncio.wait_for(listener.get(), 30)) is None:
        pass  # means only that something may have been missed
    return Envelope.from_json(message).event.type


async def test_the_channel_of_all_and_the_delegations_own_hear_it_from_the_first_event_on(desk: Desk) -> None:
    async with desk.bus.listen(EVENTS) as every, desk.bus.listen(channel(desk.id)) as own:
        await desk.accept()
        claim = await desk.store.claim(desk.id, "token", "worker-1", 10)
        assert claim is not None
        await desk.pipe.script(RECORD, *script_call(RunUpdate(events=[(2, desk.envelope(2))]), desk.id, claim.fence))
        for listener in (every, own):
            assert [await heard(listener) for _ in range(2)] == ["run_queued", "turn_started"]


async def test_both_channels_hear_of_a_cancellation_before_the_start(desk: Desk) -> None:
    await desk.accept()
    async with desk.bus.listen(EVENTS) as every, desk.bus.listen(channel(desk.id)) as own:
        await desk.store.cancel(desk.id)
        assert [await heard(listener) for listener in (every, own)] == ["run_finished"] * 2


async def test_following_all_yields_what_is_published_from_now_on(desk: Desk) -> None:
    following = follow_all(desk.bus)
    coming = asyncio.ensure_future(anext(following))
    await until(lambda: desk.store.redis.publish(EVENTS, desk.envelope(7)))
    assert (await asyncio.wait_for(coming, 30)).seq == 7
    await following.aclose()


async def test_closing_ends_it_at_any_time_after_its_start(redis_url: str) -> None:
    for steps in range(12):
        async with connect(redis_url) as redis, asyncio.timeout(10), Bus(redis):
            for _ in range(steps):
                await asyncio.sleep(0)


async def connected(bus: Bus) -> None:
    """Returns when the bus hears Redis: those who listen from now on get no None for what may have been missed."""
    async with bus.listen("deputize:first"):
        pass


async def test_a_listener_that_does_not_keep_up_loses_its_backlog_and_is_informed(desk: Desk) -> None:
    await connected(desk.bus)
    async with desk.bus.listen("deputize:test") as slow:
        async with desk.store.redis.pipeline(transaction=False) as pipeline:
            for number in range(DEPTH + 1):
                pipeline.publish("deputize:test", str(number))
            await pipeline.execute()
        await until(lambda: slow.qsize() == 1)
        assert slow.get_nowait() is None


async def test_a_channel_is_heard_until_its_last_listener_has_left(desk: Desk) -> None:
    await connected(desk.bus)
    async with desk.bus.listen("deputize:test") as one:
        async with desk.bus.listen("deputize:test"):
            pass
        assert await desk.store.redis.publish("deputize:test", "news") == 1
        assert await asyncio.wait_for(one.get(), 30) == "news"
    assert await desk.store.redis.publish("deputize:test", "news") == 0


async def test_who_waits_for_a_redis_that_is_away_can_leave() -> None:
    async with connect("unix:///nowhere/redis.sock") as redis, Bus(redis) as bus:
        entering = asyncio.ensure_future(bus.listen("deputize:test").__aenter__())
        await asyncio.sleep(0)
        entering.cancel()
        await asyncio.wait_for(asyncio.wait({entering}), 30)
        assert entering.cancelled()


def test_a_connection_that_breaks_on_uvloop_is_made_again_and_listeners_are_informed(redis_url: str) -> None:
    """uvloop has errors of its own for a transport that is closed; redis-py's own retry would inform none of them."""

    async def hear_again() -> str | None:
        async with connect(redis_url, retries=0) as redis, Bus(redis) as bus, asyncio.timeout(30):
            await connected(bus)
            async with bus.listen("deputize:test") as listener:
                pubsub: Any = bus._pubsub
                pubsub.connection._writer.transport.abort()
                assert await listener.get() is None

                async def is_heard() -> bool:
                    await redis.publish("deputize:test", "heard")
                    return not listener.empty()

                await until(is_heard)
                return listener.get_nowait()

    assert uvloop.run(hear_again()) == "heard"
