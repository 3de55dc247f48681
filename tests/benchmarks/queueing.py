"""5,100 runs of 51 owners that wait for places in workers: how fair the order is in which they start, and its cost.

The store's scripts decide the order in a real Redis, and nothing is carried out.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from deputize.shared.connection import Pipe, connect
from deputize.shared.runs.store import WRITING, RunStore
from tests.benchmarks.number import Number
from tests.processes.redis_server import RedisProcess
from tests.runs.many_owners import jain, order_of_starts

OWNERS = [f"owner-{number}" for number in range(51)]
EQUAL = dict.fromkeys(OWNERS, 100)
ONE_LARGE = {owner: 5000 if owner == OWNERS[0] else 2 for owner in OWNERS}


async def measure(runs: int) -> list[Number]:
    indexes: list[float] = []
    waits: list[float] = []
    costs: list[float] = []
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        server = RedisProcess(Path(folder))
        try:
            for _ in range(runs):
                equal, _ = await _order(server, EQUAL)
                shares = Counter(equal[: len(equal) // 2])
                indexes.append(jain([shares[owner] for owner in OWNERS]))
                unequal, cost = await _order(server, ONE_LARGE)
                costs.append(cost)
                waits.append(max(at for at, owner in enumerate(unequal, 1) if owner != OWNERS[0]))
        finally:
            server.kill()
    return [
        Number(
            "51 owners with 100 waiting runs each: Jain's index of the first half of starts", "", indexes, at_least=0.95
        ),
        Number("50 owners with 2 beside one with 5,000: starts until all of the 50 have begun", "", waits, at_most=103),
        Number("… CPU of Redis for accepting and starting a run", "µs", costs),
    ]


async def _order(server: RedisProcess, counts: dict[str, int]) -> tuple[list[str], float]:
    """Returns the owners in the order of their starts, and the microseconds of Redis for each."""
    before = _busy(server)
    async with (
        connect(server.url) as redis,
        connect(server.url, timeout=None) as writing,
        Pipe(writing, WRITING) as pipe,
    ):
        found = await order_of_starts(RunStore(redis, 60), pipe, counts)
    used = _busy(server) - before
    server.empty()
    return found, used / len(found) * 1e6


def _busy(server: RedisProcess) -> float:
    """Returns the seconds of CPU that the server has used."""
    info = server.client.info("cpu")
    return info["used_cpu_user"] + info["used_cpu_sys"]
