"""Following events: one pub/sub connection per process, any number of followers, exactly-once delivery."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from typing import Any, Self

from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from .background import Backoff, RepeatedCause, essential
from .connection import REDIS_ERRORS, channel_in, database_of, shielded
from .events import Envelope, RunFinished
from .runs.keys import BUS, EVENTS, channel
from .runs.store import RunStore

Listener = asyncio.Queue["str | None"]
"""The queue of one who listens to a channel: its messages in order, and None where some may have been missed."""

DEPTH = 2000
SHARED = 128
"""The events that are kept in their parsed form, for the other followers in this process."""
RECHECK_SECONDS = 5.0

_parsed = lru_cache(SHARED)(Envelope.read)


class Bus:
    """Shares one subscription connection among all listeners of a process and reconnects when it breaks."""

    def __init__(self, redis: Redis) -> None:
        """``redis`` must not retry: it would subscribe again without a word to those who may have missed something."""
        self._redis = redis
        self._named = partial(channel_in, database_of(redis))
        self._listeners: dict[str, set[Listener]] = {}
        self._pubsub: PubSub | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready: dict[str, asyncio.Event] = {}

    async def __aenter__(self) -> Self:
        self._task = essential(self._keep_listening(), "bus")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @asynccontextmanager
    async def listen(self, name: str) -> AsyncGenerator[Listener]:
        """Yields a listener with the channel's messages; the subscription is active when the block is entered."""
        listener: Listener = asyncio.Queue(DEPTH)
        name = self._named(name)
        first = name not in self._listeners
        self._listeners.setdefault(name, set()).add(listener)
        ready = self._ready.setdefault(name, asyncio.Event())
        try:
            if first and self._pubsub is not None:
                with suppress(*REDIS_ERRORS):
                    await asyncio.shield(self._pubsub.subscribe(name))
            await ready.wait()
            yield listener
        finally:
            self._listeners[name].discard(listener)
            if not self._listeners[name]:
                del self._listeners[name], self._ready[name]
                if self._pubsub is not None:
                    with suppress(*REDIS_ERRORS):
                        await asyncio.shield(self._pubsub.unsubscribe(name))

    async def _keep_listening(self) -> None:
        backoff, kept = Backoff(), self._named(BUS)
        trouble = RepeatedCause("this process does not hear Redis: no live events, no requests to cancel")
        while True:
            pubsub = self._redis.pubsub()
            try:
                # A channel of our own keeps the connection subscribed while there is no listener.
                await shielded(pubsub.subscribe(kept))
                # From here on listeners subscribe themselves; earlier ones are subscribed now.
                self._pubsub = pubsub
                awaited = {kept, *self._listeners}
                if self._listeners:
                    await shielded(pubsub.subscribe(*self._listeners))
                for listener in [listener for listeners in self._listeners.values() for listener in listeners]:
                    _put(listener, None)
                async for message in pubsub.listen():  # pragma: no branch - subscribed to BUS, it has no end
                    self._deliver(message)
                    awaited.discard(message["channel"])
                    if not awaited:
                        backoff.reset()
                        trouble.works()
            except REDIS_ERRORS as error:
                trouble.failed(error)
            finally:
                self._pubsub = None
                with suppress(*REDIS_ERRORS):
                    await asyncio.shield(pubsub.aclose())
            await backoff.wait()

    def _deliver(self, message: dict[str, Any]) -> None:
        name = message["channel"]
        if message["type"] == "subscribe" and name in self._ready:
            self._ready[name].set()
        elif message["type"] == "message":
            for listener in self._listeners.get(name, ()):
                _put(listener, message["data"])


def _put(listener: Listener, message: str | None) -> None:
    """Delivers a message. A listener that cannot keep up loses its backlog and gets None; the others do not wait."""
    if listener.full():
        while not listener.empty():
            listener.get_nowait()
        message = None
    listener.put_nowait(message)


async def follow(
    bus: Bus, store: RunStore, id: str, after: int = 0, recheck: float = RECHECK_SECONDS
) -> AsyncGenerator[Envelope]:
    """Yields every event of a delegation after ``after``, in order, then the live ones, up to ``run_finished``.

    Yields nothing where that is not above ``after``.
    Durable events are delivered exactly once, however often the connection breaks; transient frames only live.
    After ``recheck`` seconds without a message the stored events are read. Raises ``NotFound``.
    """
    async with bus.listen(channel(id)) as listener:
        seq = after
        news = await store.events(id, seq)
        while True:
            for envelope in news:
                yield envelope
                seq = envelope.seq or seq
                if isinstance(envelope.event, RunFinished):
                    return
            if not news and await store.has_ended(id, seq):
                return
            news = await _news(listener, store, id, seq, recheck)


async def _news(listener: Listener, store: RunStore, id: str, seq: int, recheck: float) -> list[Envelope]:
    """Returns what follows ``seq``: the next message, or the stored events if a message may have been missed."""
    try:
        # Not wait_for: in Python 3.11 it may take the message and swallow a cancellation.
        async with asyncio.timeout(recheck):
            message = await listener.get()
    except TimeoutError:
        message = None  # the last message may have been lost, so the stored events are read
    if message is None:
        return await store.events(id, seq)
    if (envelope := _parsed(message)) is None:
        return []
    if envelope.seq is None or envelope.seq == seq + 1:
        return [envelope]
    return await store.events(id, seq) if envelope.seq > seq else []


async def follow_all(bus: Bus) -> AsyncGenerator[Envelope]:
    """Yields the durable events of all delegations from now on; earlier ones are not replayed."""
    async with bus.listen(EVENTS) as listener:
        while True:
            if (message := await listener.get()) and (envelope := _parsed(message)):
                yield envelope
