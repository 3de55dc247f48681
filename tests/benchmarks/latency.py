"""How long it takes until a delegation runs on an idle stack, and until what is published is heard."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

from deputize.shared.bus import Bus, follow
from deputize.shared.connection import Pipe, connect
from deputize.shared.events import ProgressMade
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.store import WRITING, RunStore
from deputize.worker.core.emit import Emitter
from deputize.worker.redis_record import RedisRecord
from tests.benchmarks.load import Load, open_load
from tests.benchmarks.number import Number, percentile
from tests.benchmarks.script import Script

STARTS = 150
EVENTS = 500
PAUSE_SECONDS = 0.005


async def measure(runs: int) -> list[Number]:
    starts: list[list[float]] = []
    events: list[list[float]] = []
    async with open_load() as load:
        for _ in range(runs):
            starts.append([await _start(load) for _ in range(STARTS)])
            events.append(await _published(load))
    return [
        Number("accept → run_started, p50", "ms", [percentile(run, 50) for run in starts], at_most=15),
        Number("accept → run_started, p99", "ms", [percentile(run, 99) for run in starts], at_most=60),
        Number("publish → follower, p50", "ms", [percentile(run, 50) for run in events], at_most=1),
        Number("publish → follower, p99", "ms", [percentile(run, 99) for run in events], at_most=5),
    ]


async def _start(load: Load) -> float:
    """Milliseconds from the call of ``accept`` to hearing that the run has started, while nothing else runs."""
    load.ends.reset()
    begun = time.perf_counter()
    accepted = await load.parts.service.create(load.parts.request(Script()))
    await load.ends.wait_for(1)
    return (load.ends.started[accepted.delegation.id] - begun) * 1000


async def _published(load: Load) -> list[float]:
    """Milliseconds from saying a durable event, as a run does, to having it from ``follow``, as the API does."""
    url, took = load.parts.redis_url, list[float]()
    async with (
        connect(url) as redis,
        connect(url, timeout=None) as writing,
        Pipe(writing, WRITING) as pipe,
        Bus(redis) as bus,
    ):
        store = RunStore(redis, 60)
        id = await _queued_for_nobody(store)
        claim = await store.claim(id, "benchmark", "benchmark", 60)
        assert claim is not None
        emitter = Emitter(RedisRecord(pipe), claim, [], lambda: None)

        async def say() -> None:
            for _ in range(EVENTS):
                emitter.emit(ProgressMade(message=str(time.perf_counter_ns())))
                await asyncio.sleep(PAUSE_SECONDS)

        saying: asyncio.Task[None] | None = None
        async with aclosing(follow(bus, store, id)) as news:
            async for envelope in news:
                if isinstance(envelope.event, ProgressMade):
                    took.append((time.perf_counter_ns() - int(envelope.event.message)) / 1e6)
                saying = saying or asyncio.create_task(say())
                if len(took) == EVENTS:
                    break
        assert saying is not None
        await saying
    return took


async def _queued_for_nobody(store: RunStore) -> str:
    """A record without a ticket: no worker looks for it before its claim is overdue."""
    request = DelegationRequest(task="be followed")
    return (await store.accept([(new_id(), request, request.limits)], 60))[0].id
