"""Evaluations through kills, of workers and of the command itself: how many results are not counted exactly once.

The seed draws after how many starts what is killed. Real workers and `deputize eval --resume`, with a scripted model.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deputize.shared.runs.keys import INDEX
from tests.benchmarks.ends import Ends, hear_ends
from tests.benchmarks.number import Number
from tests.benchmarks.own_fleet import own_fleet
from tests.orchestrator.command_line import started
from tests.orchestrator.serving import served
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet
from tests.runs.totals import check_totals
from tests.waiting import until

TASKS, RUNS = 200, 5
KILLS, BREAKS = 12, 4
"""Kills of a worker, and of the command."""
WORKERS, SLOTS = 2, 20
FAILING = 4
"""One of so many tasks reaches a limit in each of its runs."""
TURN_SECONDS = 0.1
PATIENCE_SECONDS = 300


async def measure(runs: int) -> list[Number]:
    wrong, cut = list[float](), list[float]()
    for seed in range(runs):
        found, lost = await evaluated(TASKS, RUNS, seed, KILLS, BREAKS)
        wrong.append(len(found))
        cut.append(lost)
        print(f"seed {seed}:", *found or ["each counted once"], sep="\n  ", flush=True)
    what = f"{TASKS} tasks × {RUNS} runs, {KILLS} kills of workers and {BREAKS} of the command"
    return [Number(f"{what}: not counted once", "", wrong, at_most=0), Number("… runs that lost a worker", "", cut)]


async def evaluated(
    tasks: int, runs: int, seed: int, kills: int, breaks: int, slots: int = SLOTS
) -> tuple[list[str], int]:
    """Evaluates through so many kills.

    Returns what was not counted exactly once, in words, and how many runs have lost a worker.
    """
    draw, moments = random.Random(seed), range(1, tasks * runs + 1)
    worker_kills, command_kills = (sorted(draw.sample(moments, count)) for count in (kills, breaks))
    settings = {"lease_seconds": 2, "claim_seconds": 5, "max_attempts": 1000, "shutdown_seconds": 0}
    own = own_fleet(**settings, concurrency=slots, no_token=True)
    async with own as (fleet, folder), hear_ends(str(fleet.settings.redis_url)) as ends:
        await asyncio.gather(*(fleet.start(f"w{number}") for number in range(WORKERS)))
        async with served(fleet.service, fleet.settings) as url:
            command = _Command(url, _tasks(folder, tasks), runs)
            killing = asyncio.create_task(_kill_workers(fleet, ends, worker_kills, draw))
            figures = await command.run_through(ends, command_kills)
            await killing
        rows = command.rows()
        return await _wrong(fleet, rows, figures, tasks, runs), sum(row["attempts"] > 1 for row in rows)


def _tasks(folder: Path, count: int) -> Path:
    work = {"blocks": [call("write_file", path="a.txt", content="a")], "delay": TURN_SECONDS}
    model = script(folder, work, {"blocks": [say("Done.")], "delay": TURN_SECONDS})
    lines: list[dict[str, Any]] = [{"task": f"task {number}", "model": model} for number in range(1, count + 1)]
    for line in lines[FAILING - 1 :: FAILING]:
        line["limits"] = {"maxTurns": 1}
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@dataclass
class _Command:
    """`deputize eval`, which is killed and goes on again."""

    url: str
    tasks: Path
    runs: int

    @property
    def out(self) -> Path:
        return self.tasks.with_name("results.jsonl")

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text().splitlines()]

    async def run_through(self, ends: Ends, moments: Sequence[int]) -> dict[str, Any]:
        """Returns the figures that it reports in the end."""
        arguments = ("eval", str(self.tasks), "--runs", str(self.runs), "--out", str(self.out), "--resume", "--json")
        for moment in moments:
            async with started(*arguments, DEPUTIZE_URL=self.url):
                await _reached(ends, moment)
        async with started(*arguments, DEPUTIZE_URL=self.url) as command:
            done = await command.done(PATIENCE_SECONDS)
        assert done.code == 0, done.err
        return json.loads(done.out.splitlines()[-1])


async def _kill_workers(fleet: Fleet, ends: Ends, moments: Sequence[int], draw: random.Random) -> None:
    for number, moment in enumerate(moments):
        await _reached(ends, moment)
        await fleet.kill(draw.choice(sorted(fleet.workers)))
        await fleet.start(f"k{number}", wait=False)


async def _reached(ends: Ends, moment: int) -> None:
    """Returns when so many runs have started. Where a worker was killed before it had reported that, the end counts."""
    await until(lambda: len(ends.started.keys() | ends.ended.keys()) >= moment, PATIENCE_SECONDS)


async def _wrong(
    fleet: Fleet, rows: Sequence[dict[str, Any]], figures: dict[str, Any], tasks: int, runs: int
) -> list[str]:
    wanted = {(task, run) for task in range(1, tasks + 1) for run in range(1, runs + 1)}
    counted = Counter((row["task"], row["run"]) for row in rows)
    wrong = [f"task {task}, run {run} has {counted[task, run]} rows" for task, run in wanted if counted[task, run] != 1]
    wrong += [f"{place} is no run" for place in counted.keys() - wanted]
    numbers = {
        "delegations of the rows": (len({row["delegationId"] for row in rows}), tasks * runs),
        "delegations": (await fleet.service.store.redis.zcard(INDEX), tasks * runs),
        "runs of the figures": (figures["runs"], tasks * runs),
        "successes": (figures["successes"], (tasks - tasks // FAILING) * runs),
    }
    wrong += [f"{name}: {found} instead of {of}" for name, (found, of) in numbers.items() if found != of]
    wrong += [f"task {each['task']} has {each['runs']} runs" for each in figures["byTask"] if each["runs"] != runs]
    try:
        await check_totals(fleet.service.store.redis)
    except AssertionError as error:
        wrong.append(f"the totals of the metrics: {error}")
    return wrong
