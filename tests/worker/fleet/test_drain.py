"""A worker hears that it is to drain, and announces that it does."""

from __future__ import annotations

import asyncio

from tests.runs.bench import Bench
from tests.waiting import until


async def test_a_worker_hears_that_it_is_to_drain_and_announces_it(bench: Bench) -> None:
    status, asked = bench.services.status, asyncio.Event()
    status.drain = asked.set
    await until(lambda: _alive(bench))
    await status.fleet.drain(status.name)
    await asyncio.wait_for(asked.wait(), 5)
    assert not status.card().draining
    status.draining = asked.is_set
    assert status.card().draining


async def _alive(bench: Bench) -> bool:
    return bool(await bench.services.status.fleet.workers())
