"""What it costs that nothing is lost: CPU of a worker for a durable event, and how often a step goes to Redis.

The CPU is that of the parts which every run writes with (``Emitter``, ``Pipe``, the record script's client side), in
this process and without anything else. The round trips are counted by Redis itself (``total_reads_processed``: a
batch of the pipe is read at once) while a real worker carries out long and short delegations; the difference between
both is the steps' alone, and what an idle worker reads in the same time is taken off.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import redis

from deputize.shared.connection import Pipe, connect
from deputize.shared.delegation import Step, StepStatus
from deputize.shared.events import StepCompleted
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.store import WRITING, RunStore
from deputize.shared.wire import now
from deputize.worker.core.emit import Emitter
from deputize.worker.redis_record import RedisRecord
from tests.benchmarks.load import Load, open_load
from tests.benchmarks.number import Number
from tests.benchmarks.script import Script

EVENTS = 4000
AT_ONCE = 20
SHORT, LONG = Script(calls=1, text=0), Script(calls=21, text=0)
STEPS = LONG.calls - SHORT.calls
IDLE_SECONDS = 3.0


@dataclass(frozen=True)
class Traffic:
    """What Redis has been asked in one piece of work."""

    reads: float
    scripts: float


async def measure(runs: int) -> list[Number]:
    alone: list[float] = []
    shared: list[float] = []
    single: list[Traffic] = []
    together: list[Traffic] = []
    async with open_load() as load:
        for _ in range(runs):
            alone.append(await _cpu(load.parts.redis_url, 1))
            shared.append(await _cpu(load.parts.redis_url, AT_ONCE))
            single.append(await _traffic(load, 10, 1))
            together.append(await _traffic(load, 2 * AT_ONCE, AT_ONCE))
    return [
        Number("worker's CPU for a durable event, each in a write of its own", "µs", alone, at_most=150),
        Number(f"… {AT_ONCE} runs at once", "µs", shared, at_most=150),
        Number("round trips to Redis for a step and its turn", "", [each.reads for each in single], at_most=1),
        Number(f"… {AT_ONCE} delegations at once", "", [each.reads for each in together], at_most=1),
        Number("… scripts run for it, one delegation at a time", "", [each.scripts for each in single]),
        Number(f"… scripts run for it, {AT_ONCE} at once", "", [each.scripts for each in together]),
    ]


async def _cpu(url: str, at_once: int) -> float:
    """Microseconds of this process for one event that is published and then kept."""
    async with connect(url) as reading, connect(url, timeout=None) as writing, Pipe(writing, WRITING) as pipe:
        store = RunStore(reading, 60)
        emitters = [await _emitter(store, pipe) for _ in range(at_once)]
        await asyncio.gather(*(_say(emitter, 20) for emitter in emitters))
        before = time.process_time()
        await asyncio.gather(*(_say(emitter, EVENTS // at_once) for emitter in emitters))
        return (time.process_time() - before) * 1e6 / EVENTS


async def _emitter(store: RunStore, pipe: Pipe) -> Emitter:
    request = DelegationRequest(task="be kept")
    id = (await store.accept([(new_id(), request, request.limits)], 60))[0].id
    claim = await store.claim(id, "benchmark", "benchmark", 60)
    assert claim is not None
    return Emitter(RedisRecord(pipe), claim, [], lambda: None)


async def _say(emitter: Emitter, count: int) -> None:
    step = Step(
        id="toolu_1",
        type="read",
        title="Read notes.txt",
        status=StepStatus.COMPLETED,
        tool_name="read_file",
        arguments={"path": "notes.txt", "limit": 1000},
        turn_index=1,
        timestamp=now(),
        result="the quick brown fox jumps, again\n" * 10,
    )
    for _ in range(count):
        emitter.emit(StepCompleted(step=step))
        await emitter.settled()


async def _traffic(load: Load, count: int, at_once: int) -> Traffic:
    """What one step more costs, of so many delegations."""
    async with _counted(load) as idle:
        await asyncio.sleep(IDLE_SECONDS)
    found: list[Traffic] = []
    for script in (SHORT, LONG):
        begun = time.perf_counter()
        async with _counted(load) as seen:
            await load.run(script, count, at_once)
        share = (time.perf_counter() - begun) / IDLE_SECONDS
        found.append(Traffic(seen[0].reads - share * idle[0].reads, seen[0].scripts - share * idle[0].scripts))
    short, long = found
    steps = count * STEPS
    return Traffic((long.reads - short.reads) / steps, (long.scripts - short.scripts) / steps)


@asynccontextmanager
async def _counted(load: Load) -> AsyncGenerator[list[Traffic]]:
    """What Redis is asked within the block."""
    found: list[Traffic] = []
    with redis.Redis.from_url(load.parts.redis_url, decode_responses=True) as client:
        before = _asked(client)
        yield found
        after = _asked(client)
    found.append(Traffic(after.reads - before.reads, after.scripts - before.scripts))


def _asked(client: redis.Redis) -> Traffic:
    scripts = client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)
    return Traffic(client.info("stats")["total_reads_processed"], scripts)
