"""A large prepared environment under runs: what it adds to a run, what siblings prepare, and when a second run begins.

Runs with the environment and runs over an empty workspace take turns, so that both meet the same load. Each makes one
call, a command that does next to nothing. All siblings are accepted before the first one starts. The project with a
long set-up is this one.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from deputize.shared.events import ProgressMade, TurnStarted
from deputize.shared.request import DelegationRequest
from deputize.worker.linux.system import taken_bytes
from deputize.worker.task import carry_out
from tests.architecture.sources import ROOT
from tests.benchmarks.number import Number
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import Bench, call, open_bench, say, script

FILES, BYTES = 50_000, 10_000
SIBLINGS = 50
PAIRS = 15
SETUP = f"""
python3 - <<'END'
import os
data = os.urandom({BYTES})
for number in range({FILES}):
    folder = f"node_modules/p{{number // 50}}"
    os.makedirs(folder, exist_ok=True)
    with open(f"{{folder}}/{{number}}.js", "wb") as file:
        file.write(data)
END
"""
CLOCK = 60
LONG = f"""
python3 -m venv --without-pip .venv
sleep {CLOCK}
echo 'import site' > "$(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/prepared.py"
"""
TABLE: dict[str, Any] = {"large": {"setup": SETUP, "inputs": ["lock"]}, "project": {"setup": LONG}}
LINES = {None: "true", "large": "test -e node_modules/p0/0.js", "project": "python -c 'import prepared'"}
"""What runs with an environment execute."""


async def measure(runs: int) -> list[Number]:
    more, begun, prepared, disk = list[float](), list[float](), list[float](), list[float]()
    first, second = list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        subprocess.run(["git", "clone", "-q", ROOT, folder / "project"], check=True)
        redis = RedisProcess(folder / "redis")
        try:
            for number in range(runs):
                async with open_bench(redis.url, folder / f"home-{number}", environments=TABLE) as bench:
                    ids = [await _accept(bench, folder, "large") for _ in range(SIBLINGS)]
                    await asyncio.gather(*(carry_out(bench.services, id) for id in ids))
                    prepared.append(await _preparations(bench, ids))
                    disk.append(_share(bench, ids))
                    begun.append(await _first_turn(bench, folder, "large"))
                    more.append(median([await _difference(bench, folder) for _ in range(PAIRS)]))
                    first.append(await _first_turn(bench, folder, "project"))
                    second.append(await _first_turn(bench, folder, "project"))
        finally:
            redis.close()
    size = FILES * BYTES // 1_000_000
    return [
        Number(f"a prepared environment of {FILES:,} files, {size} MB: more than an empty workspace", "ms", more, 60),
        Number(f"… {SIBLINGS} siblings: preparations", "", prepared, at_most=1),
        Number("… disk that a sibling takes, of the environment's", "%", disk, at_most=1),
        Number("… taken by a worker → the first turn of a later run", "s", begun, at_most=1.5),
        Number(f"a project whose set-up takes {CLOCK} s: taken by a worker → the first turn", "s", first),
        Number("… the same of the second run", "s", second, at_most=1.5),
    ]


async def _accept(bench: Bench, folder: Path, environment: str | None) -> str:
    model = script(folder, [call("bash", command=LINES[environment])], [say("done")])
    own: Any = {"workspace": {"kind": "directory", "path": str(folder / "project")}} if environment == "project" else {}
    return await bench.accept(DelegationRequest(task="x", model=model, environment=environment, **own))


async def _timed(bench: Bench, folder: Path, environment: str | None) -> float:
    id, begun = await _accept(bench, folder, environment), time.monotonic()
    await carry_out(bench.services, id)
    taken = (time.monotonic() - begun) * 1000
    assert (await bench.result(id)).errors == []
    return taken


async def _difference(bench: Bench, folder: Path) -> float:
    """Milliseconds that a run with the environment takes more than one without."""
    return await _timed(bench, folder, "large") - await _timed(bench, folder, None)


async def _first_turn(bench: Bench, folder: Path, environment: str) -> float:
    id, begun = await _accept(bench, folder, environment), time.time()
    await carry_out(bench.services, id)
    assert (await bench.result(id)).errors == []
    first = next(each for each in await bench.events(id) if isinstance(each.event, TurnStarted))
    return first.at.timestamp() - begun


async def _preparations(bench: Bench, ids: list[str]) -> float:
    seen = [event.message for id in ids for event in await bench.seen(id, ProgressMade)]
    return sum("is prepared" in message for message in seen)


def _share(bench: Bench, ids: list[str]) -> float:
    (whole,) = (path for path in bench.settings.prepared.iterdir() if path.is_dir())
    siblings = [taken_bytes([bench.settings.workspaces / id], 60) or 0 for id in ids]
    return 100 * median(siblings) / (taken_bytes([whole], 60) or 1)
