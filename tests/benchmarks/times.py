"""A schedule of every second over three services that are killed, while the clock of Redis is put forward and back.

Each time has to begin one delegation, and none may be left out beyond the rule: of the times that are more than ten
seconds late one does. A delegation of the next time cancels the last one, so no worker is needed. The clock of Redis is
changed for its process alone, which needs a C compiler.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deputize.orchestrator.delegations import Delegations, open_service
from deputize.orchestrator.scheduler import LATE_SECONDS
from deputize.shared.delegation import Delegation
from deputize.shared.settings import Settings
from tests.benchmarks.number import Number
from tests.benchmarks.service_processes import ServiceProcess, service_processes
from tests.processes.redis_server import RedisProcess

SECONDS = 600.0
STEPS = (30, -20)
"""Seconds by which the clock of Redis is put forward or back, at equal distances."""
SERVICES = 3
KILL_SECONDS = 6.0
"""Between two kills. Of ten one ends all services."""
_EXACT_SECONDS = 1.0
"""How exactly the clock of Redis is known: where it does nothing it reads the machine's now and then."""
TABLE = {"cron": "* * * * * *", "task": "Tick", "overlap": "cancel", "pause_after": 0}


@dataclass
class SteppedClock:
    """The clock of one Redis."""

    folder: Path
    steps: list[tuple[float, int]] = field(default_factory=lambda: [(0.0, 0)])
    """When it was changed, by the machine's clock, and how many seconds it was off from then on."""

    def environment(self) -> dict[str, str]:
        """Compiles what changes the clock, and returns the environment in which Redis has it."""
        library = self.folder / "clock.so"
        source = Path(__file__).with_name("stepped_clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
        self._write(0)
        return {**os.environ, "CLOCK_OFFSET": str(self._offset), "LD_PRELOAD": str(library)}

    def step(self, seconds: int) -> None:
        self.steps.append((time.time(), self.steps[-1][1] + seconds))
        self._write(self.steps[-1][1])

    def at(self, moment: datetime) -> float:
        """Returns what it showed at a moment of the machine's clock."""
        seconds = moment.timestamp()
        return seconds + next(offset for since, offset in reversed(self.steps) if since <= seconds)

    def _write(self, seconds: int) -> None:
        with self._offset.open("r+b" if self._offset.exists() else "wb") as file:  # the same file: it is mapped
            file.write(struct.pack("@l", seconds))

    @property
    def _offset(self) -> Path:
        return self.folder / "offset"


async def measure(
    runs: int, seconds: float = SECONDS, steps: Sequence[int] = STEPS, kill_seconds: float = KILL_SECONDS
) -> list[Number]:
    seed = random.randrange(1 << 32)
    print(f"{seconds:g} s, steps {[*steps]}, seed {seed}", flush=True)
    chance, rows = random.Random(seed), list[dict[str, float]]()
    for _ in range(runs):
        with TemporaryDirectory(prefix="bench-") as name:
            rows.append(await _round(Path(name), chance, seconds, steps, kill_seconds))
    every = f"a schedule of every second for {seconds:g} s over {SERVICES} services, killed {rows[0]['kills']:g} times"
    return [
        Number(f"{every}: times that began something twice", "", [each["twice"] for each in rows], at_most=0),
        Number("… left out beyond the rule", "", [each["beyond"] for each in rows], at_most=0),
        Number(
            "… left out by the rule, by steps of the clock and without a service",
            "",
            [each["by_rule"] for each in rows],
        ),
        Number(
            "… from the last one that began something to the end", "s", [each["behind"] for each in rows], LATE_SECONDS
        ),
        Number("… that began a delegation", "", [each["begun"] for each in rows]),
    ]


async def _round(
    folder: Path, chance: random.Random, seconds: float, steps: Sequence[int], kill_seconds: float
) -> dict[str, float]:
    clock = SteppedClock(folder)
    redis = RedisProcess(folder / "redis", environment=clock.environment() if steps else None)
    own: dict[str, Any] = {"redis_url": redis.url, "home": folder, "no_token": True, "schedules": {"tick": TABLE}}
    settings = Settings.load(environ={}, **own)
    try:
        async with AsyncExitStack() as opened:
            service = await opened.enter_async_context(open_service(settings, redis.url))
            services = await opened.enter_async_context(service_processes(settings, folder, SERVICES))
            changing = asyncio.create_task(_change(clock, seconds, steps))
            kills = await _kill(services, chance, seconds, kill_seconds)
            await changing
            begun, end = await _begun(service), datetime.now(UTC)
    finally:
        redis.close()
    return {"kills": kills, **_judged(begun, clock, end)}


async def _change(clock: SteppedClock, seconds: float, steps: Sequence[int]) -> None:
    for step in steps:
        await asyncio.sleep(seconds / (len(steps) + 1))
        clock.step(step)


async def _kill(services: list[ServiceProcess], chance: random.Random, seconds: float, pause: float) -> int:
    """Kills services and starts them again until the time is over; returns how often."""
    end, kills, starting = time.monotonic() + seconds, 0, set[asyncio.Task[None]]()
    while time.monotonic() + pause < end:
        await asyncio.sleep(pause * chance.uniform(0.5, 1.5))
        running = [each for each in services if each.url]
        victims = running if chance.random() < 0.1 else running[:1] and [chance.choice(running)]
        await asyncio.gather(*(each.kill() for each in victims))
        starting = {asyncio.create_task(each.start()) for each in victims} | {
            each for each in starting if not each.done()
        }
        kills += len(victims)
    await asyncio.sleep(max(0.0, end - time.monotonic()))
    await asyncio.gather(*starting)
    return kills


async def _begun(service: Delegations) -> list[Delegation]:
    found, cursor = list[Delegation](), None
    while not found or cursor:
        page = await service.list(limit=500, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
    return found


def _judged(begun: list[Delegation], clock: SteppedClock, end: datetime) -> dict[str, float]:
    """Compares what has begun with the rule.

    Where times are left out after one, that one was more than ten seconds late.
    """
    accepted, times = dict[int, float](), Counter[int]()
    for each in begun:
        text = (each.request.idempotency_key or "").partition("@")[2]
        due = int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())
        times[due] += 1
        accepted[due] = clock.at(each.created_at)
    gaps = {one: two - one - 1 for one, two in pairwise(sorted(times)) if two > one + 1}
    beyond = {due: gap for due, gap in gaps.items() if accepted[due] - due < LATE_SECONDS - _EXACT_SECONDS}
    late = {due: round(accepted[due] - due, 1) for due in gaps}
    print(f"left out: {gaps}; began so many seconds late before: {late}; beyond the rule: {beyond}", flush=True)
    return {
        "begun": len(times),
        "behind": clock.at(end) - max(times),
        "twice": sum(each > 1 for each in times.values()),
        "beyond": sum(beyond.values()),
        "by_rule": sum(gaps.values()) - sum(beyond.values()),
    }
