"""200 delegations of four tool calls on one worker, with a model that thinks for 100 ms."""

from __future__ import annotations

from tests.benchmarks.load import open_load
from tests.benchmarks.number import Number
from tests.benchmarks.script import Script

COUNT = 200
SCRIPT = Script(calls=4, delay=100)


async def measure(runs: int) -> list[Number]:
    walls: list[float] = []
    cpu: list[float] = []
    mock: list[float] = []
    async with open_load() as load:
        for _ in range(runs):
            await load.parts.mock.reset()
            before = load.worker.cpu_seconds()
            walls.append(await load.run(SCRIPT, COUNT))
            cpu.append((load.worker.cpu_seconds() - before) * 1000 / COUNT)
            seen = await load.parts.mock.stats()
            mock.append(seen["cpu_seconds"] * 1000 / seen["turns"])
    return [
        Number("200 delegations × 4 tool calls, 100 ms model delay, one worker", "s", walls, at_most=3),
        Number("… CPU of the worker for each delegation", "ms", cpu),
        Number("… CPU of the model mock for each turn", "ms", mock, at_most=0.2),
    ]
