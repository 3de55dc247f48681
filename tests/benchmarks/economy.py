"""Turns through message batches: how many batches, what they cost beside direct calls, and what kills pay for twice.

The endpoint is the fake model with the provider's rules of caching. Two workers, with the times of production.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from deputize.shared.connection import connect
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.store import RunStore
from deputize.worker.models import close_models
from tests.benchmarks.number import Number
from tests.benchmarks.own_fleet import own_fleet
from tests.fake_model import FakeModel, PromptCache, Turn, call, text
from tests.processes.redis_server import RedisProcess
from tests.runs.fleet import Fleet
from tests.waiting import until
from tests.worker.economy.killing import run_with_kill

RUNS, LONG_RUNS, KILLED_RUNS, KILLS = 1000, 50, 200, 5
CONTEXT = "What every one of them has to know. " * 400
REPLY = [text("A finding in a few words. " * 20)]
LOOK = [call("glob", pattern="*.md")]
MODEL = "claude-sonnet-5-5"


@asynccontextmanager
async def open_stack(seconds: float = 1.0) -> AsyncGenerator[tuple[Fleet, FakeModel]]:
    async with FakeModel(cache=PromptCache()) as fake:
        fake.batches.seconds = seconds
        fake.script("one turn", [Turn(REPLY)])
        fake.script("five turns", [*[Turn(LOOK)] * 4, Turn(REPLY)])
        settings = {"model_endpoint": fake.variables, "model": MODEL, "concurrency": RUNS}
        async with own_fleet(**settings) as (fleet, _):
            for name in ("1", "2"):
                await fleet.start(name)
            yield fleet, fake


async def carried_out(fleet: Fleet, task: str, count: int, *, economy: bool) -> list[ToolAgentResult]:
    """Hands over so many tasks at once, and returns their results."""
    length = len(CONTEXT)
    requests = [
        DelegationRequest(
            task=f"{task}, number {number}", context=CONTEXT, shared_context_length=length, economy=economy
        )
        for number in range(count)
    ]
    ids = [each.id for each in await fleet.service.create_many(requests)]
    results = [await fleet.result(id, 600) for id in ids]
    assert {each.status for each in results} == {"succeeded"}
    return results


def dollars(results: Sequence[ToolAgentResult]) -> float:
    return sum(each.usage.cost_usd or 0 for each in results)


def paid_twice(fake: FakeModel) -> int:
    """How many requests were billed more than once."""
    bodies = Counter(str(asked.body["messages"]) for asked in fake.journal if asked.path == "batch")
    return sum(times - 1 for times in bodies.values())


async def measure(runs: int) -> list[Number]:
    batches, shares, long_shares, twice = list[float](), list[float](), list[float](), list[float]()
    for _ in range(runs):
        async with open_stack() as (fleet, fake):
            cheap = await carried_out(fleet, "one turn", RUNS, economy=True)
            batches.append(len(fake.batches.all))
        async with open_stack() as (fleet, _):
            shares.append(dollars(cheap) / dollars(await carried_out(fleet, "one turn", RUNS, economy=False)))
        async with open_stack() as (fleet, _):
            cheap = await carried_out(fleet, "five turns", LONG_RUNS, economy=True)
        async with open_stack() as (fleet, _):
            long_shares.append(
                dollars(cheap) / dollars(await carried_out(fleet, "five turns", LONG_RUNS, economy=False))
            )
        twice.append(await _killed_workers())
    at_steps, kills = await _killed_at_steps()
    return [
        Number("1,000 runs of one turn, two workers: message batches", "", batches, at_most=12),
        Number("… their cost, in times of that of direct calls", "×", shares, at_most=0.55),
        Number("50 runs of five turns: the same", "×", long_shares, at_most=0.55),
        Number("200 runs, 5 kills of workers: requests paid twice", "", twice, at_most=0),
        Number("a kill before and after each step: requests paid twice", "", [at_steps], at_most=0),
        Number("… kills", "", [kills]),
    ]


async def _killed_workers() -> int:
    async with open_stack(3.0) as (fleet, fake):
        carrying = asyncio.create_task(carried_out(fleet, "one turn", KILLED_RUNS, economy=True))
        for number in range(KILLS):
            seen = len(fake.journal)
            await until(lambda seen=seen: len(fake.journal) > seen or carrying.done())
            name = str(1 + number % 2)
            await fleet.kill(name)
            await fleet.start(name)
        await carrying
        return paid_twice(fake)


async def _killed_at_steps() -> tuple[int, int]:
    twice = kills = 0
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        server = RedisProcess(Path(folder) / "redis")
        try:
            async with connect(server.url) as redis, FakeModel() as fake:
                for step in range(1, 1000):
                    ends = [await run_with_kill(RunStore(redis, 60), fake, (step, after)) for after in (False, True)]
                    kills += sum(killed for _, killed in ends)
                    if not ends[1][1]:
                        break
                twice = paid_twice(fake)
                await close_models()
        finally:
            server.kill()
    return twice, kills
