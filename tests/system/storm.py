"""A storm: many delegations with effects that can be counted, workers killed at random, Redis restarted.

`python -m tests.system.storm --minutes 10` (`make chaos`) goes on with new delegations until the time is over, with two
hostile ones beside them, and prints what it survived.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from deputize.shared.errors import Unavailable
from tests.processes.leaks import adopt_orphans, descendants, described, endless_keys
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet, open_fleet
from tests.runs.totals import check_totals
from tests.system.crashing import WORKER, Counting, check, effects
from tests.waiting import until

HOSTILE = {
    "holds the interpreter": [[call("bash", command="true"), call("hold", seconds=60)]] * 20,
    "fills its disk": [[call("bash", command="head -c 2G /dev/zero > big; sleep 1")]] * 60,
}
"""The turns of delegations that are made to harm their workers, and so the delegations beside them."""
DISK_BYTES = 64 << 20
BURST = 40
"""Delegations handed over together; the next ones follow when these are about done."""


@dataclass
class Storm:
    """What happened, and what went wrong."""

    delegations: int = 0
    kills: int = 0
    restarts: int = 0
    attempts: list[int] = field(default_factory=list[int])
    wrong: list[str] = field(default_factory=list[str])

    def told(self) -> str:
        tries = f"{sum(self.attempts)} attempts, at most {max(self.attempts, default=0)} for one"
        return (
            f"{self.delegations} delegations, {self.kills} workers killed, {self.restarts} restarts of Redis, "
            f"{tries}, {len(self.wrong)} things wrong"
        )


async def rage(
    redis: RedisProcess,
    folder: Path,
    *,
    delegations: int,
    workers: int,
    seconds: float,
    kill_every: float,
    restarts: int,
    kills: int = 0,
    hostile: bool = False,
) -> Storm:
    """One storm of ``seconds``, or longer until there were that many ``kills``; then all of it must end well.

    ``hostile`` ones are beside it then, and are cancelled at its end.
    """
    storm = Storm()
    settings = {"lease_seconds": 2, "claim_seconds": 5, "max_attempts": 1000, "shutdown_seconds": 0}
    settings |= {"sandbox": {"disk_bytes": DISK_BYTES}} if hostile else {}
    async with open_fleet(redis.url, folder / "home", **settings) as fleet, Counting.open() as counting:
        await asyncio.gather(*(fleet.start(f"w{n}", program=WORKER) for n in range(workers)))
        beside = [
            await fleet.hand_over(model=script(folder, *turns, [say("done")]), tools=["bash", "hold"])
            for turns in (HOSTILE.values() if hostile else ())
        ]
        ids, _ = await asyncio.gather(
            hand_over(fleet, counting, folder, storm, delegations, 0.9 * seconds),
            trouble(fleet, redis, storm, time.monotonic() + seconds, kill_every, restarts, kills),
        )
        await asyncio.gather(*(judge(fleet, counting, storm, id, name) for id, name in ids.items()))
        for id in beside:
            await fleet.service.cancel(id)
            assert await until(partial(has_ended, fleet, id), 120)
        try:
            await check_totals(fleet.service.store.redis)
        except AssertionError as error:
            storm.wrong.append(f"the totals are others than those of the events: {error}")
        storm.wrong += [f"a key without an end: {key}" for key in endless_keys(redis.client)]
    return storm


async def hand_over(
    fleet: Fleet, counting: Counting, folder: Path, storm: Storm, number: int, seconds: float
) -> dict[str, str]:
    """In bursts over the whole time, so that whatever falls falls on work under way. Returns names by their ids."""
    ids: dict[str, str] = {}
    for name in (f"n{n}" for n in range(number)):
        model = effects(folder, counting, name)
        ids[await until(partial(accepted, fleet, model=model, tools=["*"], idempotency_key=name))] = name
        storm.delegations += 1
        if storm.delegations % BURST == 0:
            await asyncio.sleep(seconds * BURST / number)
    return ids


async def accepted(fleet: Fleet, **fields: Any) -> str | None:
    """The delegation's id, or None while Redis is away."""
    try:
        return await fleet.hand_over(**fields)
    except Unavailable:
        return None


async def trouble(
    fleet: Fleet, redis: RedisProcess, storm: Storm, end: float, kill_every: float, restarts: int, kills: int
) -> None:
    """Kills a worker and starts another, again and again; restarts Redis at even distances."""
    chance = random.Random(7)
    begin = time.monotonic()
    falls = [begin + (end - begin) * (n + 1) / (restarts + 1) for n in range(restarts)]
    while time.monotonic() < end or storm.kills < kills:
        await asyncio.sleep(kill_every)
        if falls and time.monotonic() > falls[0]:
            falls.pop(0)
            redis.kill()
            redis.start()
            storm.restarts += 1
        await fleet.kill(chance.choice(sorted(fleet.workers)))
        storm.kills += 1
        await fleet.start(f"k{storm.kills}", program=WORKER, wait=False)


async def has_ended(fleet: Fleet, id: str) -> bool:
    try:
        return (await fleet.service.get(id)).result is not None
    except Unavailable:
        return False


async def judge(fleet: Fleet, counting: Counting, storm: Storm, id: str, name: str) -> None:
    try:
        await until(partial(has_ended, fleet, id), 240)
    except AssertionError:
        storm.wrong.append(f"{id} has no result: {(await fleet.service.get(id)).status}")
        return
    result = (await fleet.service.get(id)).result
    assert result is not None
    storm.attempts.append(result.attempts)
    storm.wrong += [f"{id}: {wrong}" for wrong in await check(fleet, counting, result, name)]


async def main(minutes: float, workers: int) -> int:
    adopt_orphans()
    total = Storm()
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory() as folder:
            redis = RedisProcess(Path(folder))
            seconds = min(60.0, max(end - time.monotonic(), 5))
            storm = await rage(
                redis,
                Path(folder),
                delegations=400,
                workers=workers,
                seconds=seconds,
                kill_every=2,
                restarts=2,
                hostile=True,
            )
            redis.kill()
        print(storm.told(), *storm.wrong[:20], sep="\n  ", flush=True)
        for name in ("delegations", "kills", "restarts", "attempts", "wrong"):
            setattr(total, name, getattr(total, name) + getattr(storm, name))
        with suppress(AssertionError):
            await until(lambda: not descendants())  # on a busy machine a killed process takes its time
        total.wrong += [f"left: {described(pid)}" for pid in descendants()]
    print("survived:", total.told(), *total.wrong[:20], sep="\n  ")
    return 1 if total.wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    sys.exit(asyncio.run(main(options.minutes, options.workers)))
