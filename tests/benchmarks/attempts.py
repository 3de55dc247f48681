"""What several attempts cost, in times of one: five of a model that solves its task in half of the runs."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from deputize.shared.delegation import ToolAgentResult
from tests.benchmarks.number import Number
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import Bench, call, open_bench, say
from tests.runs.nesting import carrying_out

ATTEMPTS = 5
CHANCE = 0.5
TASKS = 60
AT_ONCE = 4
FILES = {"sum.py": "def add(a, b):\n    return a - b\n", "test_sum.py": "import sum\nassert sum.add(2, 3) == 5\n"}
USAGE = {"input": 4000, "output": 400}


async def measure(runs: int, tasks: int = TASKS) -> list[Number]:
    one, two = list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        server = RedisProcess(Path(folder))
        try:
            async with open_bench(server.url, Path(folder, "home")) as bench, carrying_out(bench):
                for seed in range(runs):
                    one.append(await _times_of_one(bench, Path(folder), seed, tasks, 1))
                    two.append(await _times_of_one(bench, Path(folder), seed, tasks, 2))
        finally:
            server.kill()
    name = f"cost of up to {ATTEMPTS} attempts at p = {CHANCE}, one after another, mean of {tasks} tasks"
    return [Number(name, "× one", one, at_most=2.2), Number("… two at once", "× one", two)]


async def _times_of_one(bench: Bench, folder: Path, seed: int, tasks: int, concurrency: int) -> float:
    """The same seed draws the same outcomes."""
    draw, slots = random.Random(seed), asyncio.Semaphore(AT_ONCE)
    outcomes = [[draw.random() < CHANCE for _ in range(ATTEMPTS)] for _ in range(tasks)]

    async def tried(number: int) -> float:
        async with slots:
            result = await _result(bench, folder / f"{seed}-{concurrency}-{number}", outcomes[number], concurrency)
        assert result.success is any(outcomes[number]), result.errors
        assert result.tournament
        whole = next(each.cost_usd for each in result.tournament.attempts if not each.ending.startswith("cancelled"))
        return (result.usage.cost_usd or 0) / (whole or 1)

    return mean(await asyncio.gather(*map(tried, range(tasks))))


async def _result(bench: Bench, folder: Path, outcomes: Sequence[bool], concurrency: int) -> ToolAgentResult:
    project = folder / "project"
    project.mkdir(parents=True)
    for name, text in FILES.items():
        (project / name).write_text(text)
    models = [_model(folder / f"{number}.json", solves) for number, solves in enumerate(outcomes)]
    return await bench.run(
        "add two numbers",
        workspace=str(project),
        verify=[{"kind": "command", "run": "python3 test_sum.py"}],
        max_verify_rounds=0,
        attempts={"count": ATTEMPTS, "concurrency": concurrency, "models": models},
    )


def _model(path: Path, solves: bool) -> str:
    work = call("write_file", path="sum.py", content=f"def add(a, b):\n    return a {'+' if solves else '*'} b\n")
    turns: list[Any] = [{"blocks": [block], "usage": USAGE, "delay": 0.05} for block in (work, say("Done."))]
    rules = [{"turns": turns, "summary": "Nothing more."}]
    path.write_text(json.dumps({"rules": rules, "price": {"input": 3.0, "output": 15.0}, "label": ""}))
    return f"scripted:{path}"
