"""What a turn costs the worker, durable events and history written, against the bare SDK's loop in the same pass."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field

from tests.benchmarks.load import Load, open_load
from tests.benchmarks.number import Number
from tests.benchmarks.script import Script

CALLS = 10


@dataclass
class Case:
    """One way to talk; ``ours`` and ``theirs`` are milliseconds of CPU a turn, one value a run."""

    name: str
    script: Script
    count: int
    at_once: int
    has_target: bool = False
    ours: list[float] = field(default_factory=list[float])
    theirs: list[float] = field(default_factory=list[float])

    @property
    def turns(self) -> int:
        return self.count * self.script.turns

    def numbers(self) -> list[Number]:
        ratios = [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]
        most = 1.0 if self.has_target else None
        return [
            Number(f"worker's CPU for a turn of {self.name}", "× SDK", ratios, at_most=most),
            Number("… the worker", "ms", self.ours),
            Number("… the bare SDK", "ms", self.theirs),
        ]


async def measure(runs: int) -> list[Number]:
    cases = [
        Case("106 text deltas, one delegation at a time", Script(calls=CALLS, text=106), 15, 1, has_target=True),
        Case("106 text deltas, 20 at once", Script(calls=CALLS, text=106), 20, 20),
        Case("6 text deltas, one at a time", Script(calls=CALLS, text=6), 15, 1),
        Case("106 text deltas over 200 ms, 20 at once", Script(calls=CALLS, text=106, spread=200), 20, 20),
    ]
    async with open_load() as load:
        for _ in range(runs):
            for case in cases:  # side by side, because a machine's speed drifts
                case.ours.append(await _ours(load, case))
                case.theirs.append(await _theirs(load, case))
    return [number for case in cases for number in case.numbers()]


async def _ours(load: Load, case: Case) -> float:
    before = load.worker.cpu_seconds()
    await load.run(case.script, case.count, case.at_once)
    return (load.worker.cpu_seconds() - before) * 1000 / case.turns


async def _theirs(load: Load, case: Case) -> float:
    options = {
        "--url": load.parts.mock.url,
        "--folder": str(load.parts.folder / "source"),
        "--task": case.script.task(),
        "--count": str(case.count),
        "--at-once": str(case.at_once),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.benchmarks.bare_sdk"),
        *(part for pair in options.items() for part in pair),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, "the bare loop failed"
    told = json.loads(said)
    assert told["turns"] == case.turns
    return told["cpu_seconds"] * 1000 / case.turns
