"""Runs of three turns at an endpoint with a token bucket: how much is refused, how much of the refill is used, by whom.

Two workers with 500 slots. Each round begins with new processes, which know nothing of the limit. The peer is the SDK
with 20 retries.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import redis

from deputize.shared.request import MAX_BATCH, DelegationRequest
from tests.benchmarks.ends import Ends, hear_ends
from tests.benchmarks.number import Number
from tests.benchmarks.parts import Parts, open_parts
from tests.benchmarks.script import Script

WORKERS, SLOTS = 2, 500
SCRIPT = Script(calls=2)
MOST_SECONDS = 600


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

    async def run(self, bucket: Bucket, sessions: dict[str, int]) -> Round:
        """Carries out so many runs of each session, all handed over at once, the largest session first."""
        mock = self.parts.mock
        options = f"rate={bucket.rate}&burst={bucket.burst}&retry={int(bucket.retry)}&held={int(bucket.held)}"
        await mock.http.post(f"{mock.url}/limit?{options}")
        workers = [await self.parts.worker(SLOTS, str(number)) for number in range(WORKERS)]
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


async def round_of(bucket: Bucket, sessions: dict[str, int]) -> Round:
    async with open_stack() as stack:
        return await stack.run(bucket, sessions)


CASES = {
    "60 runs, 4/s": (60, Bucket()),
    "60 runs, 4/s, Retry-After": (60, Bucket(retry=True)),
    "100 runs, 4/s": (100, Bucket()),
    "1,000 runs, 40/s": (1000, Bucket(40, 80)),
}


async def measure(runs: int) -> list[Number]:
    numbers = list[Number]()
    for name, (count, bucket) in CASES.items():
        rounds = [await round_of(bucket, {"": count}) for _ in range(runs)]
        numbers += [
            Number(f"{name}: refused for each served", "×", [each.refused for each in rounds], at_most=0.05),
            Number("… of the refill used", "%", [each.used for each in rounds], at_least=95),
            Number("… CPU of the workers for a turn", "ms", [each.cpu_ms for each in rounds]),
        ]
    numbers += _costs(
        [await round_of(Bucket(100, 80, held=True), {"": 1000}) for _ in range(runs)],
        [await round_of(Bucket(100, 80), {"": 1000}) for _ in range(runs)],
    )
    numbers += _fairness([await round_of(Bucket(), {"many": 100, "few": 5}) for _ in range(runs)])
    numbers += _owners([await round_of(Bucket(40, 80), {f"owner {n}": 20 for n in range(51)}) for _ in range(runs)])
    return [*numbers, *await _peer(runs)]


def _costs(held: Sequence[Round], limited: Sequence[Round]) -> list[Number]:
    """What a turn takes where requests are admitted, above one whose requests wait as long in the endpoint."""
    pairs = list(zip(held, limited, strict=True))
    above = "… above one whose request waits in the endpoint"
    return [
        Number("1,000 runs, 100/s: CPU of the workers for a turn", "ms", [each.cpu_ms for each in limited]),
        Number(above, "ms", [b.cpu_ms - a.cpu_ms for a, b in pairs], at_most=0.3),
        Number("… scripts for a turn, above the same", "", [b.scripts - a.scripts for a, b in pairs], at_most=2),
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


async def _peer(runs: int) -> list[Number]:
    """The SDK's own retries, as many conversations at once."""
    finished, refused = list[float](), list[float]()
    for _ in range(runs):
        async with open_parts() as parts:
            mock = parts.mock
            await mock.http.post(f"{mock.url}/limit?rate=4&burst=8&retry=1")
            await mock.reset()
            options = ["--url", mock.url, "--folder", str(parts.folder / "source"), "--task", SCRIPT.task()]
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.benchmarks.bare_sdk", *options),
                *("--count", "60", "--at-once", "60", "--retries", "20"),
                stdout=asyncio.subprocess.PIPE,
            )
            said, _ = await process.communicate()
            seen = await mock.stats()
            finished.append(json.loads(said)["finished"])
            refused.append(seen["refused"] / seen["turns"])
    return [
        Number("the SDK with 20 retries, 60 at once, 4/s: finished", "of 60", finished),
        Number("… refused for each served", "×", refused),
    ]
