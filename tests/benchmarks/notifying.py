"""How soon news of a delegation arrive: at many followers of its events, at a webhook, and a message at the model."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

from deputize.shared.connection import Pipe, connect
from deputize.shared.events import MessageRead, ProgressMade
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.store import WRITING, RunStore
from deputize.shared.wire import now
from deputize.worker.core.emit import Emitter
from deputize.worker.redis_record import RedisRecord
from tests.benchmarks.number import Number, percentile
from tests.benchmarks.own_fleet import own_fleet
from tests.benchmarks.parts import Parts, open_parts
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet
from tests.runs.receiving import Receiver, receiving
from tests.waiting import until

FOLLOWERS = 500
EVENTS = 30
PAUSE_SECONDS = 0.2
AT_ONCE = 20
HOLD = call("bash", command="touch begun.txt; until test -e go.txt; do sleep 0.02; done")
_SAID = re.compile(rb'"message":"(\d+)"')


class Follower(asyncio.Protocol):
    """A client of server-sent events that reads only when each one was said."""

    def __init__(self, took: list[float]) -> None:
        self._took = took

    def data_received(self, data: bytes) -> None:
        heard = time.perf_counter_ns()
        self._took += [(heard - int(said)) / 1e6 for said in _SAID.findall(data)]


async def measure(runs: int) -> list[Number]:
    followed, costs = list[list[float]](), list[float]()
    async with open_parts() as parts:
        url = await parts.api()
        for _ in range(runs):
            took, cost = await _followed(parts, url)
            followed.append(took)
            costs.append(cost)
    delays, read = list[float](), list[float]()
    async with receiving() as receiver, own_fleet(**receiver.settings) as (fleet, folder):
        await fleet.start("1")
        for _ in range(runs):
            delays.append(max([await _notified(fleet, folder, receiver) for _ in range(AT_ONCE)]))
            read.append(sum(await asyncio.gather(*(_read(fleet, folder) for _ in range(AT_ONCE)))) / AT_ONCE * 100)
    return [
        Number(f"an event → {FOLLOWERS} followers, p50", "ms", [percentile(run, 50) for run in followed]),
        Number("… p99", "ms", [percentile(run, 99) for run in followed], at_most=50),
        Number("… the API's CPU for each follower", "µs", costs, at_most=40),
        Number("run_finished → its webhook, the slowest of 20", "s", delays, at_most=1),
        Number("messages that are read at the next turn", "%", read, at_least=100),
    ]


async def _followed(parts: Parts, url: str) -> tuple[list[float], float]:
    """Milliseconds from saying an event, as a run does, until each of the followers has it; its CPU in microseconds."""
    took, address = list[float](), urlsplit(url)
    host, port = address.hostname, address.port
    assert host
    assert port
    async with (
        connect(parts.redis_url) as redis,
        connect(parts.redis_url, timeout=None) as writing,
        Pipe(writing, WRITING) as pipe,
        AsyncExitStack() as opened,
    ):
        store, request = RunStore(redis, 60), DelegationRequest(task="be followed")
        (accepted,) = await store.accept([(new_id(), request, request.limits)], 60)
        claim = await store.claim(accepted.id, "benchmark", "benchmark", 60)
        assert claim is not None
        head = f"GET /v1/delegations/{accepted.id}/events HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode()
        loop = asyncio.get_running_loop()
        for _ in range(FOLLOWERS):
            transport, _ = await loop.create_connection(lambda: Follower(took), host, port)
            transport.write(head)
            opened.callback(transport.close)
        emitter = Emitter(RedisRecord(pipe), claim, [], lambda: None)
        emitter.emit(ProgressMade(message=str(time.perf_counter_ns())))
        await until(lambda: len(took) == FOLLOWERS, 30)
        took.clear()
        before = parts.serving.cpu_seconds()
        for number in range(1, EVENTS + 1):
            emitter.emit(ProgressMade(message=str(time.perf_counter_ns())))
            emitter.flush()
            await asyncio.sleep(PAUSE_SECONDS)
            await until(lambda number=number: len(took) == number * FOLLOWERS, 30)
        cost = (parts.serving.cpu_seconds() - before) * 1e6 / (EVENTS * FOLLOWERS)
    return took, cost


async def _notified(fleet: Fleet, folder: Path, receiver: Receiver) -> float:
    """Seconds from the end of a run until its webhook has the notification."""
    before = len(receiver.received)
    id = await fleet.hand_over(model=script(folder, [say("done")]), webhook={"url": receiver.url})
    await until(lambda: len(receiver.received) > before, 30)
    heard = now()
    return (heard - (await fleet.service.events(id))[-1].at).total_seconds()


async def _read(fleet: Fleet, folder: Path) -> bool:
    """Whether a message that is sent in the first turn is read in the second."""
    id = await fleet.hand_over(model=script(folder, [HOLD], [say("done")]))
    files = fleet.settings.workspaces / id / "files"
    await until((files / "begun.txt").exists, 30)
    await fleet.service.send(id, "Hurry up.")
    (files / "go.txt").touch()
    await fleet.result(id)
    read = [each.event for each in await fleet.service.events(id) if isinstance(each.event, MessageRead)]
    return [event.turn for event in read] == [2]
