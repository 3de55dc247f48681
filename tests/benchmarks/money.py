"""Money over random trees with lost workers and answers, retries and midnights: what exceeds a limit or stays reserved.

The trees spend by the scripts of a real Redis and the parts of a run that call them (``tests/runs/money_trees.py``).
``--runs N`` is for all benchmarks: here it makes N times 2,000 trees, so five runs are 10,000.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from deputize.shared.connection import Pipe, connect
from deputize.shared.runs.store import WRITING, RunStore
from tests.benchmarks.number import Number
from tests.processes.redis_server import RedisProcess
from tests.runs.money_trees import TREES, live

TREES_PER_RUN = 2000


async def measure(runs: int) -> list[Number]:
    over: list[float] = []
    left: list[float] = []
    made: list[float] = []
    first = time.time_ns()
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        server = RedisProcess(Path(folder))
        try:
            for run in range(runs):
                found = await _run(server.url, first + run * TREES_PER_RUN)
                for numbers, number in zip((over, left, made), found, strict=True):
                    numbers.append(number)
        finally:
            server.kill()
    trees = f"{TREES_PER_RUN:,} random trees"
    return [
        Number(f"limits and caps that {trees} exceed, by what the endpoint bills", "", over, at_most=0),
        Number("… amounts that stay reserved after their end", "", left, at_most=0),
        Number("… model calls that they make", "", made),
    ]


async def _run(url: str, first: int) -> tuple[int, int, int]:
    """Returns what was exceeded, what stays reserved, and the number of model calls."""
    over = left = calls = 0
    async with connect(url) as redis, connect(url, timeout=None) as writing, Pipe(writing, WRITING) as pipe:
        store = RunStore(redis, 60)
        for seed in range(first, first + TREES_PER_RUN // TREES):
            world = await live(store, pipe, seed)
            exceeded, kept = world.overshoots(), await world.leftovers()
            if exceeded or kept:
                print(f"seed {seed}: {exceeded} {kept}", flush=True)
            over, left, calls = over + len(exceeded), left + len(kept), calls + len(world.billed)
            await redis.flushdb()
    return over, left, calls
