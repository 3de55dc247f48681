"""What the worker's checks cost beside the time of the check itself: the grounds, the sandboxes and the reports.

A check whose command has a known time of its own is run over a small and a larger project. It fails before the run and
succeeds after it, so its command runs on the base, with the changes, on the base once more and with its canary.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.number import Number
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import Bench, call, open_bench, say, script

OWN_SECONDS = 0.2
RUNS_OF_COMMAND = 4
CANARY = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-good\n+broken\n"
CHECK = {"kind": "command", "run": f"sleep {OWN_SECONDS}; grep -q good a.txt", "canary": CANARY}
SIZES = (10, 2_000)
ROUNDS = 5


async def measure(runs: int) -> list[Number]:
    small, large, without = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        projects = [_project(folder / f"project-{size}", size) for size in SIZES]
        redis = RedisProcess(folder / "redis")
        try:
            async with open_bench(redis.url, folder / "home") as bench:
                await _added(bench, folder, projects[0])  # the first sandbox starts what the others share
                for _ in range(runs):
                    small.append(await _added(bench, folder, projects[0]))
                    large.append(await _added(bench, folder, projects[1]))
                    without.append(await _unchecked(bench, folder, projects[0]))
        finally:
            redis.close()
    return [
        Number(
            f"verification beside the check's own time, for each run of it, {SIZES[0]} files", "ms", small, at_most=150
        ),
        Number(f"… {SIZES[1]:,} files", "ms", large, at_most=150),
        Number("a whole delegation with one edit and no check, in the same process", "ms", without),
    ]


def _project(folder: Path, size: int) -> Path:
    for number in range(size):
        (folder / f"d{number // 50}").mkdir(parents=True, exist_ok=True)
        (folder / f"d{number // 50}/{number}.py").write_text(f"value = {number}\n" * 100)
    return folder


async def _delegate(bench: Bench, folder: Path, project: Path, **fields: Any) -> tuple[float, Any]:
    edit = [call("write_file", path="a.txt", content="good\n")]
    begun = time.perf_counter()
    result = await bench.run(model=script(folder, edit, [say("done")]), workspace=str(project), **fields)
    return (time.perf_counter() - begun) * 1000, result


async def _added(bench: Bench, folder: Path, project: Path) -> float:
    """Milliseconds for each run of the command: what the whole delegation takes longer, without the command's own."""
    plain, _ = await _delegate(bench, folder, project)
    checked, result = await _delegate(bench, folder, project, verify=[CHECK])
    assert result.verification.verdict == "verified", result.verification
    return (checked - plain) / RUNS_OF_COMMAND - OWN_SECONDS * 1000


async def _unchecked(bench: Bench, folder: Path, project: Path) -> float:
    took = [(await _delegate(bench, folder, project))[0] for _ in range(ROUNDS)]
    return sorted(took)[ROUNDS // 2]
