"""Runs of three turns at an endpoint with a token bucket: how much is refused, how much of the refill is used, by whom.

Two workers with 500 slots. Each round begins with new processes, which know nothing of the limit. The peers are the SDK
with 20 retries and, where DEPUTIZE_BENCH_LITELLM names an interpreter that can import litellm, its router.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import redis

from deputize.shared.request import MAX_BATCH, DelegationRequest
from tests.benchmarks.ends import Ends, hear_ends
from tests.benchmarks.number import Number
from tests.benchmarks.parts import Parts, Worker, open_parts
from tests.benchmarks.script import Script
from tests.waiting import until

WORKERS, SLOTS = 2, 500
SCRIPT = Script(calls=2)
MOST_SECONDS = 600
WARM_RUNS = 60
"""With another model, whose limit is another one: only what new processes load is paid."""
COSTS_RUNS, COSTS_PAIRS = 300, 5
WORKING = Script(calls=10, delay=200)
FAILURES = 3
"""So often the endless one has failed when those beside it begin."""
LITELLM = "DEPUTIZE_BENCH_LITELLM"


@dataclass(frozen=True)
class Bucket:
    """The endpoint's limit. ``retry``: a refusal states when to try again. ``held``: requests wait in the endpoint."""

    rate: float = 4
    burst: int = 8
    retry: bool = False
    held: bool = False

    def ideal(self, turns: int) -> float:
        """The least seconds from the first to the last request that is served."""
        return (turns - self.burst) / self.rate


@dataclass(frozen=True)
class Round:
    """What the endpoint saw, and when the runs of each session ended, from the start of its first one."""

    refused: float
    used: float
    ends: dict[str, list[float]]
    cpu_ms: float
    """Of the workers, for each turn."""
    scripts: float
    """That Redis executed, for each turn."""


@dataclass
class Stack:
    parts: Parts
    ends: Ends

    async def workers(self, count: int) -> list[Worker]:
        return [await self.parts.worker(SLOTS, str(number)) for number in range(count)]

    async def warm(self) -> None:
        requests = [self._request("").model_copy(update={"model": "warm"})] * WARM_RUNS
        accepted = await self.parts.service.create_many(requests)
        await self.ends.wait_for(len(accepted), MOST_SECONDS)
        self.ends.reset()

    async def run(self, bucket: Bucket, sessions: dict[str, int], workers: Sequence[Worker]) -> Round:
        """Carries out so many runs of each session, all handed over at once, the largest session first."""
        mock = self.parts.mock
        options = f"rate={bucket.rate}&burst={bucket.burst}&retry={int(bucket.retry)}&held={int(bucket.held)}"
        await mock.http.post(f"{mock.url}/limit?{options}")
        await mock.reset()
        before, scripts = sum(worker.cpu_seconds() for worker in workers), self._scripts()
        requests = [self._request(name) for name, count in sessions.items() for _ in range(count)]
        accepted = list[str]()
        for at in range(0, len(requests), MAX_BATCH):
            accepted += [each.id for each in await self.parts.service.create_many(requests[at : at + MAX_BATCH])]
        await self.ends.wait_for(len(accepted), MOST_SECONDS)
        seen = await mock.stats()
        turns = SCRIPT.turns * len(accepted)
        assert seen["turns"] == turns, seen
        cpu = sum(worker.cpu_seconds() for worker in workers) - before
        of_session = dict[str, list[float]]()
        begun = dict[str, float]()
        for id, request in zip(accepted, requests, strict=True):
            name, started = request.session_id or "", self.ends.started[id]
            begun[name] = min(begun.get(name, started), started)
            of_session.setdefault(name, []).append(self.ends.ended[id])
        of_session = {name: [end - begun[name] for end in ends] for name, ends in of_session.items()}
        used = 100 * bucket.ideal(turns) / seen["seconds"]
        executed = (self._scripts() - scripts) / turns
        return Round(seen["refused"] / turns, used, of_session, cpu * 1000 / turns, executed)

    async def working(self) -> float:
        """Returns the seconds in which ten runs end that work."""
        self.ends.reset()
        begun = time.perf_counter()
        await self.parts.service.create_many([self.parts.request(WORKING)] * 10)
        await self.ends.wait_for(10)
        return time.perf_counter() - begun

    async def working_beside_endless(self) -> float:
        """Returns the same, beside a run whose requests all end with status 500."""
        await self.parts.mock.reset()
        (endless,) = await self.parts.service.create_many([self.parts.request(Script(fails=1))])

        async def fails() -> bool:
            return (await self.parts.mock.stats())["failed"] >= FAILURES

        await until(fails)
        seconds = await self.working()
        await self.parts.service.cancel(endless.id)
        await self.ends.wait_for(11)
        return seconds

    def _scripts(self) -> int:
        with redis.Redis.from_url(self.parts.redis_url) as client:
            found: Any = client.info("commandstats")
            return found.get("cmdstat_evalsha", {}).get("calls", 0)

    def _request(self, session: str) -> DelegationRequest:
        return self.parts.request(SCRIPT).model_copy(update={"session_id": session or None})


@asynccontextmanager
async def open_stack() -> AsyncGenerator[Stack]:
    async with open_parts() as parts, hear_ends(parts.redis_url) as ends:
        yield Stack(parts, ends)


async def round_of(bucket: Bucket, sessions: dict[str, int], *, count: int = WORKERS, warm: bool = False) -> Round:
    async with open_stack() as stack:
        workers = await stack.workers(count)
        if warm:
            await stack.warm()
        return await stack.run(bucket, sessions, workers)


CASES = {
    "60 runs, 4/s": (60, Bucket(), WORKERS),
    "60 runs, 4/s, Retry-After": (60, Bucket(retry=True), WORKERS),
    "100 runs, 4/s": (100, Bucket(), WORKERS),
    "100 runs, 4/s, four workers": (100, Bucket(), 4),
    "1,000 runs, 40/s": (1000, Bucket(40, 80), WORKERS),
}


async def measure(runs: int) -> list[Number]:
    numbers = list[Number]()
    for name, (count, bucket, workers) in CASES.items():
        rounds = [await round_of(bucket, {"": count}, count=workers) for _ in range(runs)]
        numbers += [
            Number(f"{name}: refused for each served", "×", [each.refused for each in rounds], at_most=0.05),
            Number("… of the refill used", "%", [each.used for each in rounds], at_least=95),
            Number("… CPU of the workers for a turn", "ms", [each.cpu_ms for each in rounds]),
        ]
    numbers += await _costs(COSTS_PAIRS * runs)
    numbers += await _endless(runs)
    numbers += _fairness([await round_of(Bucket(), {"many": 100, "few": 5}) for _ in range(runs)])
    numbers += _owners([await round_of(Bucket(40, 80), {f"owner {n}": 20 for n in range(51)}) for _ in range(runs)])
    return [*numbers, *await _peers(runs)]


async def _costs(count: int) -> list[Number]:
    """What a turn takes where requests are admitted, above one whose requests wait as long in the endpoint."""
    rounds: dict[bool, list[Round]] = {True: [], False: []}
    for pair in range(count):
        for held in (pair % 2 == 0, pair % 2 == 1):
            rounds[held].append(await round_of(Bucket(100, 80, held=held), {"": COSTS_RUNS}, warm=True))
    pairs = list(zip(rounds[True], rounds[False], strict=True))
    above = "… above one whose request waits in the endpoint"
    return [
        Number(f"{COSTS_RUNS} runs, 100/s: CPU of the workers for a turn", "ms", [each.cpu_ms for _, each in pairs]),
        Number(above, "ms", [b.cpu_ms - a.cpu_ms for a, b in pairs], at_most=0.3),
        Number("… scripts for a turn, above the same", "", [b.scripts - a.scripts for a, b in pairs], at_most=2),
    ]


async def _endless(runs: int) -> list[Number]:
    alone, beside = list[float](), list[float]()
    async with open_stack() as stack:
        await stack.workers(WORKERS)
        await stack.working()
        for _ in range(runs):
            alone.append(await stack.working())
            beside.append(await stack.working_beside_endless())
    ratios = [b / a for a, b in zip(alone, beside, strict=True)]
    return [
        Number(
            "10 runs beside one whose requests all end with 500, in times of their time alone", "×", ratios, at_most=1.5
        ),
        Number("… alone", "s", alone),
    ]


def _fairness(rounds: Sequence[Round]) -> list[Number]:
    """Two sessions at 4/s: half of the refill serves the small one's 15 turns in 3.75 s, without the burst."""
    fair = 5 * SCRIPT.turns / (Bucket().rate / 2)
    ratios, shares = list[float](), list[float]()
    for each in rounds:
        ratios.append(max(each.ends["few"]) / fair)
        shares.append(max(each.ends["many"]))
    return [
        Number("100 and 5 runs, 4/s: the 5, in times of their fair time", "×", ratios, at_most=1.5),
        Number("… the last of the 100", "s", shares),
        Number("… refused for each served", "×", [each.refused for each in rounds], at_most=0.05),
        Number("… of the refill used", "%", [each.used for each in rounds], at_least=95),
    ]


def _owners(rounds: Sequence[Round]) -> list[Number]:
    return [
        Number(
            "51 sessions of 20 runs, 40/s: Jain's index of their mean ends",
            "",
            [_jain(r) for r in rounds],
            at_least=0.95,
        ),
        Number("… refused for each served", "×", [each.refused for each in rounds], at_most=0.05),
    ]


def _jain(of: Round) -> float:
    means = [sum(ends) / len(ends) for ends in of.ends.values()]
    return sum(means) ** 2 / (len(means) * sum(mean**2 for mean in means))


async def _peers(runs: int) -> list[Number]:
    peers: dict[str, tuple[str, ...]] = {
        "the SDK with 20 retries": (sys.executable, "tests.benchmarks.bare_sdk", "--retries", "20")
    }
    if python := os.environ.get(LITELLM):
        peers["LiteLLM's router with 20 retries"] = (python, "tests.benchmarks.litellm_router")
    return [number for name, (python, *module) in peers.items() for number in await _peer(name, python, module, runs)]


async def _peer(name: str, python: str, module: Sequence[str], runs: int) -> list[Number]:
    """A client's own retries, 60 conversations at once."""
    finished, refused = list[float](), list[float]()
    for _ in range(runs):
        async with open_parts() as parts:
            mock = parts.mock
            await mock.http.post(f"{mock.url}/limit?rate=4&burst=8&retry=1")
            await mock.reset()
            options = ["--url", mock.url, "--folder", str(parts.folder / "source"), "--task", SCRIPT.task()]
            process = await asyncio.create_subprocess_exec(
                *(python, "-m", *module, *options, "--count", "60", "--at-once", "60"), stdout=asyncio.subprocess.PIPE
            )
            said, _ = await process.communicate()
            seen = await mock.stats()
            finished.append(json.loads(said)["finished"])
            refused.append(seen["refused"] / seen["turns"])
    return [
        Number(f"{name}, 60 at once, 4/s: finished", "of 60", finished),
        Number("… refused for each served", "×", refused),
    ]
