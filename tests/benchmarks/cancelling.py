"""How long the processes of a command outlive the cancelling of their delegation."""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from tests.benchmarks.number import Number
from tests.benchmarks.own_fleet import HOLD, begun, own_fleet
from tests.processes.leaks import descendants
from tests.runs.bench import script
from tests.runs.fleet import Fleet
from tests.waiting import until

COUNT = 50
PATIENCE_SECONDS = 10.0
OF_THE_WORKER = ("du", "unshare")
"""What measures the disk."""


async def measure(runs: int, count: int = COUNT) -> list[Number]:
    all_took: list[list[float]] = []
    async with own_fleet() as (fleet, folder):
        await fleet.start()
        await _cancelled(fleet, folder)  # the first one loads the scripts
        for _ in range(runs):
            all_took.append(sorted([await _cancelled(fleet, folder) for _ in range(count)]))
    return [
        Number(
            f"cancel → last process of the command dead, p95 of {count}",
            "ms",
            [took[count * 95 // 100] for took in all_took],
            at_most=200,
        ),
        Number("… p50", "ms", [took[count // 2] for took in all_took]),
        Number("… the longest", "ms", [took[-1] for took in all_took]),
    ]


async def _cancelled(fleet: Fleet, folder: Path) -> float:
    """Milliseconds from the call of ``cancel`` to the death of the last of sandbox, shell and three sleepers."""
    before = descendants()
    id = await fleet.hand_over(model=script(folder, [HOLD]))
    await begun(fleet, id)
    await until(lambda: len(_of_the_command(descendants() - before)) >= 3)
    watching = opened(_of_the_command(descendants() - before))
    try:
        dead = asyncio.create_task(asyncio.to_thread(last_death, watching))
        await asyncio.sleep(0.02)  # the thread waits by now
        asked = time.perf_counter()
        await fleet.service.cancel(id)
        took = (await dead - asked) * 1000
    finally:
        for fd in watching:
            os.close(fd)
    assert (await fleet.result(id)).status == "cancelled"
    return took


def _of_the_command(pids: Collection[int]) -> list[int]:
    """Those processes that are part of the command, and live."""
    found: list[int] = []
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/comm").read_text().strip() not in OF_THE_WORKER:
                found.append(pid)
    return found


def opened(pids: Collection[int]) -> list[int]:
    found: list[int] = []
    for pid in pids:
        with suppress(ProcessLookupError):
            found.append(os.pidfd_open(pid))
    return found


def last_death(watching: Sequence[int]) -> float:
    """When (``time.perf_counter``) the last of these processes ended."""
    poll = select.poll()
    for fd in watching:
        poll.register(fd, select.POLLIN)
    left, deadline = set(watching), time.perf_counter() + PATIENCE_SECONDS
    while left:
        assert time.perf_counter() < deadline, f"{len(left)} processes live on"
        for fd, _ in poll.poll(1000):
            poll.unregister(fd)
            left.remove(fd)
    return time.perf_counter()
