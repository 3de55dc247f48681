"""Siblings over one large git repository: how often the host is asked for it, and what a start costs beside a copy.

A start is the time from the worker's taking a delegation to its ``run_started``. Those of git workspaces and those of
directories with the same files take turns, so that both meet the same disk; each run's files are deleted after it. All
siblings are accepted before the first one starts. Its start, which fetches, is shown apart.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from deputize.shared.events import RunStarted
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.worker.task import carry_out
from tests.benchmarks.number import Number
from tests.network.git_server import git, git_server
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import Bench, open_bench, say, script

SIBLINGS = 50
AT_ONCE = 2
FILES, BYTES = 2_000, 100 << 10
DIRECTORY_STARTS = 10
CLAIM_SECONDS = 3600


async def measure(runs: int) -> list[Number]:
    fetches, first, starts, copies = list[float](), list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        source = _repository(folder / "source")
        redis = RedisProcess(folder / "redis")
        try:
            for number in range(runs):
                with git_server(folder / f"served-{number}") as server:
                    workspace = {"kind": "git", "url": server.add(source)}
                    own: Any = {"git_hosts": [server.host]}
                    async with open_bench(redis.url, folder / f"home-{number}", **own) as bench:
                        ids = await _accept(bench, folder, workspace, SIBLINGS)
                        first.append(await _start(bench, ids.pop()))
                        mine = await _starts(bench, folder, ids, str(source))
                    fetches.append(server.fetches)
                starts.append(median(mine[0]))
                copies.append(median(mine[1]))
        finally:
            redis.close()
    ratios = [one / other for one, other in zip(starts, copies, strict=True)]
    return [
        Number(f"{SIBLINGS} siblings over one repository of {FILES * BYTES >> 20} MB: fetches", "", fetches, at_most=1),
        Number("… a start, in times that of a directory with the same files", "×", ratios, at_most=1.2),
        Number("… a start", "ms", starts),
        Number("… a start with a directory", "ms", copies),
        Number("… the first one, with the fetch", "ms", first),
    ]


def _repository(folder: Path) -> Path:
    """Random bytes, which git cannot make smaller, in directories of 50 files."""
    folder.mkdir()
    git(folder, "init", "-q")
    for number in range(FILES):
        (folder / f"d{number // 50}").mkdir(exist_ok=True)
        (folder / f"d{number // 50}/{number}.bin").write_bytes(os.urandom(BYTES))
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "all")
    return folder


async def _starts(bench: Bench, folder: Path, ids: list[str], directory: str) -> tuple[list[float], list[float]]:
    """Starts these siblings, some at once, and among them runs over the directory, as many at once."""
    mine, copies = list[float](), list[float]()
    pairs = [ids[at : at + AT_ONCE] for at in range(0, len(ids), AT_ONCE)]
    for number, pair in enumerate(pairs):
        mine += await asyncio.gather(*(_start(bench, id) for id in pair))
        if number % (len(pairs) // DIRECTORY_STARTS) == 0:
            others = await _accept(bench, folder, directory, AT_ONCE)
            copies += await asyncio.gather(*(_start(bench, id) for id in others))
    return mine, copies


async def _accept(bench: Bench, folder: Path, workspace: Any, count: int) -> list[str]:
    """Accepts delegations in one request, each with a model of its own."""
    models = [script(folder, [say("done")]) for _ in range(count)]
    requests = [DelegationRequest(task="x", model=model, workspace=workspace) for model in models]
    asked = [(new_id(), request, request.limits.capped(bench.settings.caps)) for request in requests]
    return [accepted.id for accepted in await bench.store.accept(asked, CLAIM_SECONDS)]


async def _start(bench: Bench, id: str) -> float:
    """Milliseconds until one run has started, which then ends."""
    begun = time.time()
    await carry_out(bench.services, id)
    (started,) = [each for each in await bench.events(id) if isinstance(each.event, RunStarted)]
    await asyncio.to_thread(shutil.rmtree, bench.settings.workspaces / id)
    return (started.at.timestamp() - begun) * 1000
