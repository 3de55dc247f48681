"""Eight reads of a small file for each of 200 runs at once: on the event loop, and handed to threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from deputize.shared.log import delegation
from deputize.worker.threads import give_way, leave_loop, run_in_thread, run_short, share_threads
from tests.benchmarks.number import Number

RUNS, READS = 200, 8
ROUNDS = 4
PAUSE = 0.02
TEXT = "x = 1\n" * 300


def read(path: Path) -> int:
    leave_loop(path.stat().st_size)
    lines = path.read_text().split("\n")
    give_way()
    return len("\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, 1)))


async def bare(path: Path) -> int:
    return read(path)


WAYS: dict[str, Callable[[Path], Awaitable[int]]] = {
    "on the loop, without limits": bare,
    "on the loop, by run_short": lambda path: run_short(True, read, path),
    "in threads, by asyncio.to_thread": lambda path: asyncio.to_thread(read, path),
    "in threads, by run_in_thread": lambda path: run_in_thread(read, path),
}


async def measure(runs: int) -> list[Number]:
    share_threads(asyncio.get_running_loop())
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with TemporaryDirectory() as folder:
        path = Path(folder, "f.py")
        path.write_text(TEXT)
        for number in range(runs * ROUNDS):  # in turns, as other load changes
            for way in [*WAYS] if number % 2 else [*reversed(WAYS)]:
                found[way].append(await _round(f"{way} {number}", WAYS[way], path))
    return [
        Number(f"CPU of {READS} short reads of a run, {RUNS} runs at once: {way}", "ms", values)
        for way, values in found.items()
    ]


async def _round(name: str, way: Callable[[Path], Awaitable[int]], path: Path) -> float:
    async def run(number: int) -> None:
        delegation.set(f"{name} {number}")
        for _ in range(READS):
            sum(range(3000))  # what the loop does between two steps
            await asyncio.sleep(PAUSE)
            await way(path)

    before = time.process_time()
    await asyncio.gather(*map(run, range(RUNS)))
    return (time.process_time() - before) * 1000 / RUNS
