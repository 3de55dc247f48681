"""Work for a worker: delegations handed over at once or one after the other, each seen to its true end."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from deputize.shared.delegation import Status
from deputize.shared.request import MAX_BATCH
from tests.benchmarks.ends import Ends, hear_ends
from tests.benchmarks.parts import Parts, Worker, open_parts
from tests.benchmarks.script import FINAL, Script


@dataclass
class Load:
    """One worker and what is needed to load it."""

    parts: Parts
    worker: Worker
    ends: Ends

    async def run(self, script: Script, count: int, at_once: int | None = None) -> float:
        """Carries out ``count`` delegations, ``at_once`` of them at a time, and returns the seconds that took."""
        self.parts.empty()
        self.ends.reset()
        ids: list[str] = []
        begun = time.perf_counter()
        while len(ids) < count:
            for size in _batches(min(at_once or count, count - len(ids))):
                accepted = await self.parts.service.create_many([self.parts.request(script)] * size)
                ids += [delegation.id for delegation in accepted]
            await self.ends.wait_for(len(ids))
        seconds = max(self.ends.ended.values()) - begun
        await self._check(ids, script)
        return seconds

    async def _check(self, ids: list[str], script: Script) -> None:
        """A delegation that failed fast must not pass for a fast one."""
        for id in ids:
            result = (await self.parts.service.get(id)).result
            assert result is not None
            good = result.status is Status.SUCCEEDED and FINAL in result.summary and result.turn_count == script.turns
            assert good, f"{id}: {result.status} after {result.turn_count} turns, {result.errors}: {result.summary}"


def _batches(count: int) -> list[int]:
    return [min(MAX_BATCH, count - begin) for begin in range(0, count, MAX_BATCH)]


@asynccontextmanager
async def open_load(concurrency: int = 200) -> AsyncGenerator[Load]:
    """A worker that has carried out its first delegations: the model's SDK is imported, the scripts are loaded."""
    async with open_parts() as parts, hear_ends(parts.redis_url) as ends:
        load = Load(parts, await parts.worker(concurrency), ends)
        await load.run(Script(calls=1), 3, at_once=1)
        yield load
