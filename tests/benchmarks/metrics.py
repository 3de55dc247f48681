"""What a scrape takes, and what it costs a turn that it is counted.

The cost is that of the same writes with and without what they count, in Redis by its own clock; in the worker that of
the functions that count. Both are set against the CPU of a whole turn, in the worker and in Redis.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from pydantic_core import to_json

from deputize.shared.connection import connect
from deputize.shared.delegation import Usage
from deputize.shared.events import Envelope, Replied, TurnStarted
from deputize.shared.ids import new_id
from deputize.shared.metrics import FIRST_TOKEN, TOOL, counted, spent_fields
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import METRICS
from deputize.shared.runs.record import Claim
from deputize.shared.runs.store import RECORD, RunStore
from deputize.shared.wire import now
from deputize.worker.core.emit import RunUpdate
from deputize.worker.redis_record import script_call
from tests.benchmarks.listing import FINISHED, fill
from tests.benchmarks.load import Load, open_load
from tests.benchmarks.number import Number
from tests.benchmarks.parts import open_parts
from tests.benchmarks.script import Script

RUNNING = 1000
TOOLS = 40
TURNS = 1000
MODEL = "claude-sonnet-5-5"
REPLIED = Replied(turn=1, text="words " * 20, stop_reason="tool_use", usage=Usage())
OTHERS = 3
"""Events of a turn with one call that count nothing: the starts of turn and step, and the end of the step."""


async def measure(runs: int) -> list[Number]:
    return [*await _scrapes(runs), *await _costs(runs)]


async def _scrapes(runs: int) -> list[Number]:
    took: list[float] = []
    async with open_parts() as parts, connect(parts.redis_url) as redis:
        await fill(parts.redis_url)
        await _claimed(RunStore(redis, 3600), RUNNING)
        for tool in range(TOOLS):
            for status in ("completed", "failed"):
                for seconds in (*TOOL.buckets, 1000):
                    await _add(redis, TOOL.observed(seconds, f"tool_{tool}", status))
        url, http = f"{await parts.api()}/metrics", parts.mock.http
        for _ in range(runs + 1):
            begun = time.perf_counter()
            answer = (await http.get(url)).raise_for_status()
            took.append((time.perf_counter() - begun) * 1000)
            assert f"\ndeputize_delegations_running {RUNNING}\n" in answer.text
            assert f"\ndeputize_delegations_accepted_total {FINISHED + RUNNING}\n" in answer.text
    return [Number(f"a scrape with {FINISHED:,} finished, {RUNNING:,} running", "ms", took[1:], at_most=100)]


async def _claimed(store: RunStore, count: int) -> list[Claim]:
    request = DelegationRequest(task="do it")
    accepted = await store.accept([(new_id(), request, request.limits) for _ in range(count)], 3600)
    claims = [await store.claim(each.id, "token", "worker", 3600) for each in accepted]
    return [claim for claim in claims if claim]


async def _add(redis: Any, counts: Mapping[str, int]) -> None:
    for field, amount in counts.items():
        await redis.hincrby(METRICS, field, amount)


async def _costs(runs: int) -> list[Number]:
    shares, together, worker, server = list[float](), list[float](), list[float](), list[float]()
    async with open_load() as load, connect(load.parts.redis_url) as redis:
        for _ in range(runs):
            own, of_redis = await _turn(load, redis)
            worker.append(_counting())
            plain, counting = await _in_redis(redis, counts=False), await _in_redis(redis, counts=True)
            server.append(counting - plain)
            shares.append(worker[-1] / own * 100)
            together.append((worker[-1] + server[-1]) / (own + of_redis) * 100)
    return [
        Number("of a turn's CPU in the worker, what counts for metrics", "%", shares, at_most=1),
        Number("… of that in worker and Redis", "%", together),
        Number("… in the worker", "µs", worker),
        Number("… in Redis", "µs", server),
    ]


async def _turn(load: Load, redis: Any) -> tuple[float, float]:
    """Microseconds of CPU that a turn takes in the worker, and in Redis."""
    script, count = Script(calls=10), 20
    before, before_in_redis = load.worker.cpu_seconds(), await _cpu(redis)
    await load.run(script, count, count)
    own, in_redis = load.worker.cpu_seconds() - before, await _cpu(redis) - before_in_redis
    return own * 1e6 / (count * script.turns), in_redis * 1e6 / (count * script.turns)


def _counting() -> float:
    """Microseconds of CPU in the worker for what a turn counts: itself, its first token, one call, what it spent."""
    begun = time.process_time()
    for _ in range(TURNS):
        counts = Counter[str]()
        for found in (
            FIRST_TOKEN.observed(0.3, MODEL),
            counted(REPLIED),
            TOOL.observed(0.02, "read_file", "completed"),
        ):
            for field, amount in found.items():
                counts[field] += amount
        Counter[str]().update(counts)
        for _ in range(OTHERS):
            counted(_STARTED)
        to_json([counts, spent_fields(MODEL)])
    return (time.process_time() - begun) * 1e6 / TURNS


_STARTED = TurnStarted(turn=1)


async def _in_redis(redis: Any, *, counts: bool) -> float:
    """Microseconds of CPU in Redis for the writes of a turn."""
    (claim,) = await _claimed(RunStore(redis, 3600), 1)
    updates = [
        script_call(update, claim.id, claim.fence)
        for at in range(TURNS)
        for update in _writes(claim, at, counts=counts)
    ]
    await RECORD.run(redis, *script_call(RunUpdate(), claim.id, claim.fence)[:2])  # loads it
    before = await _cpu(redis)
    for start in range(0, len(updates), 200):
        async with redis.pipeline(transaction=False) as pipeline:
            for update in updates[start : start + 200]:
                pipeline.execute_command(*RECORD.command(*update))
            assert {*await pipeline.execute()} == {"written"}
    return (await _cpu(redis) - before) * 1e6 / TURNS


def _writes(claim: Claim, at: int, *, counts: bool) -> Iterator[RunUpdate]:
    """What a turn writes; each event in a write of its own."""
    seq, name = claim.seq + at * (OTHERS + 1), "spent" if counts else "sum"
    before, after = (Usage(input_tokens=1000 * each, output_tokens=each, cost_usd=each / 100) for each in (at, at + 1))
    numbers = count(at * (OTHERS + 3) + 1)
    yield RunUpdate(next(numbers), fields={"progress": before.to_json()})
    of_reply = Counter({**FIRST_TOKEN.observed(0.3, MODEL), **counted(REPLIED)})
    of_step = Counter(TOOL.observed(0.02, "read_file", "completed"))
    found = (Counter[str](), of_reply, Counter[str](), of_step) if counts else (Counter[str](),) * (OTHERS + 1)
    for number, amounts in enumerate(found, seq + 1):
        event = Envelope(delegation_id=claim.id, seq=number, at=now(), attempt=1, event=REPLIED).to_json()
        fields = {name: after.to_json()} if number == seq + 2 else {}
        yield RunUpdate(next(numbers), events=[(number, event)], counts=amounts, fields=fields, model=MODEL)
    yield RunUpdate(next(numbers), fields={"progress": after.to_json()})


async def _cpu(redis: Any) -> float:
    found = await redis.info("cpu")
    return found["used_cpu_user"] + found["used_cpu_sys"]
