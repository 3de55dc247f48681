"""Money over random trees with lost workers and answers, retries and midnights: what exceeds a limit or stays reserved.

In some of the worlds Redis itself is killed again and again, and started with its file.

The trees spend by the scripts of a real Redis and the parts of a run that call them (``tests/runs/money_trees.py``).
``--runs N`` is for all benchmarks: here it makes N times 2,000 trees, so five runs are 10,000.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from deputize.shared.connection import Pipe, connect
from deputize.shared.runs.store import WRITING, RunStore
from tests.benchmarks.number import Number
from tests.processes.redis_server import RedisProcess
from tests.runs.money_trees import TREES, live

TREES_PER_RUN = 2000
SEEDS = 1_000_000
"""From one run to the next."""
TREES_WITH_RESTARTS = 400
"""Trees beside which Redis is killed."""


async def measure(runs: int) -> list[Number]:
    found: list[Found] = []
    first = time.time_ns()
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        server = RedisProcess(Path(folder))
        try:
            for run in range(runs):
                found.append(await _run(server, first + run * SEEDS))
        finally:
            server.kill()
    trees = f"{TREES_PER_RUN:,} random trees, and {TREES_WITH_RESTARTS:,} beside which Redis is killed,"
    return [
        Number(f"limits and caps that {trees} exceed, by what is billed", "", [f.over for f in found], at_most=0),
        Number("… amounts that stay reserved after their end", "", [f.left for f in found], at_most=0),
        Number("… model calls that they make", "", [f.calls for f in found]),
        Number("… kills of Redis", "", [f.restarts for f in found]),
    ]


@dataclass
class Found:
    """What was exceeded, what stays reserved, and what happened."""

    over: int = 0
    left: int = 0
    calls: int = 0
    restarts: int = 0


async def _run(server: RedisProcess, first: int) -> Found:
    def restart() -> None:
        server.kill()
        server.start()

    found, url, whole = Found(), server.url, TREES_PER_RUN // TREES
    async with connect(url) as redis, connect(url, timeout=None) as writing, Pipe(writing, WRITING) as pipe:
        store = RunStore(redis, 60)
        for seed in range(first, first + whole + TREES_WITH_RESTARTS // TREES):
            world = await live(store, pipe, seed, restart if seed - first >= whole else None)
            exceeded, kept = world.overshoots(), await world.leftovers()
            if exceeded or kept:
                print(f"seed {seed}: {exceeded} {kept}", flush=True)
            found.over, found.left = found.over + len(exceeded), found.left + len(kept)
            found.calls, found.restarts = found.calls + len(world.billed), found.restarts + world.restarts
            await redis.flushdb()
    return found
