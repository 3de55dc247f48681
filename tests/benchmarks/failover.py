"""Failovers of Redis under load: no effect happens twice, and no accepted delegation is lost without a report.

Each time the replica lags, for up to ``LAG`` seconds, then catches up or not. The primary is killed, and the replica
takes over as it is. The old primary becomes its replica. One worker carries out what is accepted meanwhile.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from deputize.orchestrator.delegations import Delegations, open_service
from deputize.shared.connection import connect
from deputize.shared.errors import NotFound, Unavailable
from deputize.shared.metrics import STORE_LOSSES
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import METRICS
from deputize.shared.runs.replicas import Replicas, ReplicatedPipe
from deputize.shared.runs.store import RECORD, WRITING
from deputize.worker.core.emit import RunUpdate
from deputize.worker.redis_record import script_call
from deputize.worker.task import carry_out
from deputize.worker.tools.base import Effect, Kind, Params, Tool, ToolContext, ToolResult
from deputize.worker.tools.builtin import BUILTIN
from tests.benchmarks.number import Number, percentile
from tests.processes.replication import Replicated
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.waiting import until

FAILOVERS = 20
"""Times the number of runs of a benchmark."""
LAG = 5.0
PAUSE = 0.02
"""Seconds between two requests."""
WRITES = 500


class PayParams(Params):
    number: int


class Pay(Tool[PayParams]):
    """Pays. Nobody can be asked whether that has happened."""

    name = "pay"
    kind = Kind.EDIT
    effect = Effect.EFFECTFUL
    params = PayParams

    def __init__(self) -> None:
        self.paid: Counter[tuple[str, int]] = Counter()

    async def run(self, ctx: ToolContext, params: PayParams) -> ToolResult:
        self.paid[ctx.delegation_id, params.number] += 1
        return ToolResult("paid")


class Load:
    """Requests at a steady rate, one worker, and a Redis whose primary is killed again and again."""

    def __init__(self, servers: Replicated, service: Delegations, bench: Bench, model: str) -> None:
        self.servers = servers
        self.service = service
        self.bench = bench
        self.model = model
        self.accepted: list[str] = []
        self.refused = 0
        self.accepted_at = 0.0
        self._tasks: set[asyncio.Task[object]] = set()

    async def ask_forever(self) -> None:
        for number in count():
            await asyncio.sleep(PAUSE)
            request = DelegationRequest(task="pay", model=self.model, tools=["pay"], idempotency_key=f"k{number}")
            try:
                delegation = (await self.service.create(request)).delegation
            except Unavailable:
                self.refused += 1
                continue
            self.accepted.append(delegation.id)
            self.accepted_at = time.monotonic()
            self._start(delegation.id)

    async def work_forever(self) -> None:
        """Carries out what the worker's janitor has sent a ticket of."""
        while True:
            await asyncio.sleep(PAUSE)
            while self.bench.sent:
                self._start(self.bench.sent.pop().id)

    async def fail_over(self, chance: random.Random) -> float:
        """Returns how many seconds after the promotion the first delegation was accepted."""
        (replica,), before = self.servers.replicas, self.servers.primary
        lag = chance.uniform(0, LAG)
        replica.lag()
        await asyncio.sleep(lag)
        if chance.random() < 0.5:
            await asyncio.to_thread(replica.follow, before)
            await asyncio.sleep(chance.uniform(0, 0.2))
        await asyncio.to_thread(self.servers.fail_over, replica)
        promoted = time.monotonic()
        await asyncio.to_thread(self.servers.rejoin, before)
        await until(lambda: self.accepted_at > promoted, 60)
        return self.accepted_at - promoted

    async def lost(self) -> int:
        """Waits until all that is there has ended; returns how many of the accepted ones are gone."""
        gone = 0
        for id in self.accepted:
            try:
                await until(partial(self._has_ended, id), 120)
            except NotFound:
                gone += 1
        return gone

    async def _has_ended(self, id: str) -> bool:
        return (await self.service.get(id)).status.finished

    def _start(self, id: str) -> None:
        task = asyncio.create_task(carry_out(self.bench.services, id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def measure(runs: int) -> list[Number]:
    failovers, seed = FAILOVERS * runs, random.randrange(1 << 32)
    print(f"{failovers} failovers, seed {seed}", flush=True)
    with TemporaryDirectory(prefix="deputize-") as folder:
        servers = Replicated(Path(folder), 1)
        try:
            waits = await _waits(servers)
            twice, silent, back = await _failovers(servers, Path(folder), failovers, random.Random(seed))
        finally:
            servers.close()
    return [
        Number("added to a write that lasts, p50", "ms", [waits[0]]),
        Number("… p99", "ms", [waits[1]], at_most=1),
        Number(f"effects that happened twice in {failovers} failovers", "", [twice], at_most=0),
        Number("… accepted delegations lost without a report", "", [silent], at_most=0),
        Number("… promotion → accepted again, the longest", "s", [max(back)], at_most=2),
    ]


async def _failovers(
    servers: Replicated, folder: Path, number: int, chance: random.Random
) -> tuple[float, float, list[float]]:
    pay, own = Pay(), {"redis": {"replicas": 1}, "local": False, "lease_seconds": 2}
    async with AsyncExitStack() as stack:
        opening = open_bench(servers.url, folder / "home", offered=(*BUILTIN, pay), **own)
        bench = await stack.enter_async_context(opening)
        service = await stack.enter_async_context(open_service(bench.settings, servers.url))
        model = script(folder, [call("pay", number=1)], [call("pay", number=2)], [say("done")])
        load = Load(servers, service, bench, model)
        asking, working = asyncio.create_task(load.ask_forever()), asyncio.create_task(load.work_forever())
        back = [await load.fail_over(chance) for _ in range(number)]
        asking.cancel()
        lost = await load.lost()
        reported = await service.store.redis.hget(METRICS, STORE_LOSSES.field("delegation"))
        working.cancel()
        await asyncio.gather(asking, working, return_exceptions=True)
    print(f"{len(load.accepted)} accepted, {load.refused} refused, {lost} lost, {reported or 0} reported", flush=True)
    twice = sum(times > 1 for times in pay.paid.values())
    return twice, max(0, lost - int(reported or 0)), back


async def _waits(servers: Replicated) -> tuple[float, float]:
    """Returns by how many milliseconds a write that lasts takes longer than another one: p50 and p99."""
    found: dict[bool, list[float]] = {False: [], True: []}
    async with AsyncExitStack() as stack:
        writing = await stack.enter_async_context(connect(servers.url, timeout=None))
        pipe = await stack.enter_async_context(ReplicatedPipe(writing, WRITING, Replicas(1)))
        for number in range(2 * WRITES):
            lasts = bool(number % 2)
            call_of = partial(script_call, RunUpdate(), "dlg_0", "none")
            begun = time.perf_counter()
            done = pipe.deferred(RECORD, call_of, lasts=partial(bool, lasts))
            pipe.flush()
            with suppress(Exception):
                await done
            found[lasts].append(1000 * (time.perf_counter() - begun))
    added = [percentile(found[True], percent) - percentile(found[False], percent) for percent in (50, 99)]
    return max(0.0, added[0]), max(0.0, added[1])
