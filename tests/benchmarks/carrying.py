"""How many delegations one worker process carries at once, and what each of them weighs."""

from __future__ import annotations

import asyncio

from tests.benchmarks.load import Load, open_load
from tests.benchmarks.number import Number
from tests.benchmarks.script import Script

COUNT = 1200
SCRIPT = Script(calls=6, delay=1000)
"""So long that the last is started before the first ends: what is asked is how many are carried, not started."""
SAMPLE_SECONDS = 0.05


async def measure(runs: int) -> list[Number]:
    at_once: list[float] = []
    waiting: list[float] = []
    weights: list[float] = []
    async with open_load(concurrency=COUNT) as load:
        for _ in range(runs):
            idle = load.worker.megabytes()
            await load.parts.mock.reset()
            heaviest = await _heaviest_while(load)
            at_once.append(load.ends.peak)
            waiting.append((await load.parts.mock.stats())["peak"])
            weights.append((heaviest - idle) / load.ends.peak)
    return [
        Number("delegations at once in one worker, every model call takes 1 s", "", at_once, at_least=1000),
        Number("… of them inside a model call in the same moment", "", waiting, at_least=1000),
        Number("… memory of each above the idle worker", "MB", weights, at_most=1.0),
    ]


async def _heaviest_while(load: Load) -> float:
    """The worker's largest size while it carries out the delegations."""
    work = asyncio.create_task(load.run(SCRIPT, COUNT))
    heaviest = 0.0
    while not work.done():
        heaviest = max(heaviest, load.worker.megabytes())
        await asyncio.wait({work}, timeout=SAMPLE_SECONDS)
    await work
    return heaviest
