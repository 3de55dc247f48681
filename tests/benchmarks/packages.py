"""A real package of the index with its own tests: an agent repairs it, and checks without a network verify that.

One line of the source distribution is broken. The set-up installs wheels that were downloaded before. The second run
finds what the first one has prepared. No turn waits for the checks on the base. It needs the network,
so `make bench` leaves it out.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from deputize.shared.events import TurnStarted
from deputize.shared.request import DelegationRequest, DirectoryWorkspace
from deputize.worker.task import carry_out
from tests.benchmarks.number import Number
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import Bench, call, open_bench, say, script

PACKAGE, FILE = "semver==3.0.2", "src/semver/version.py"
RIGHT, WRONG = "return cls(self._major + 1)", "return cls(self._major + 2)"
SETUP = "python3 -m venv .venv && .venv/bin/pip install -q --no-index --find-links {wheels} pytest pytest-cov"
CHECK = {"kind": "command", "run": "PYTHONPATH=src python -m pytest -q tests"}


async def measure(runs: int) -> list[Number]:
    verified, first, later = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        source, wheels = _broken(folder), folder / "wheels"
        _download("pytest", "pytest-cov", "-d", str(wheels))
        table = {"setup": SETUP.format(wheels=wheels), "show": [str(wheels)], "inputs": ["pyproject.toml"]}
        own: Any = {"environments": {"package": table}}
        redis = RedisProcess(folder / "redis")
        try:
            for number in range(runs):
                async with open_bench(redis.url, folder / f"home-{number}", **own) as bench:
                    for times in (first, later):
                        result, seconds = await _repair(bench, folder, source)
                        times.append(seconds)
                    verified.append(result.verification.verdict == "verified")
        finally:
            redis.close()
    return [
        Number(
            f"{PACKAGE}, repaired and checked by its own tests without a network: verified", "", verified, at_least=1
        ),
        Number("… taken by a worker → the first turn, with the set-up", "s", first),
        Number("… the same of the second run", "s", later, at_most=1.5),
    ]


def _download(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", *arguments], check=True)


def _broken(folder: Path) -> Path:
    """Returns the package's files with one wrong line."""
    _download("--no-deps", "--no-binary", PACKAGE.partition("==")[0], PACKAGE, "-d", str(folder))
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    source = folder / archive.name.removesuffix(".tar.gz")
    text = (source / FILE).read_text("utf-8")
    assert text.count(RIGHT) == 1
    (source / FILE).write_text(text.replace(RIGHT, WRONG), "utf-8")
    return source


async def _repair(bench: Bench, folder: Path, source: Path) -> tuple[Any, float]:
    """Returns the result of a run that repairs the line, and the seconds until its first turn."""
    repair = call("edit_file", path=FILE, old_string=WRONG, new_string=RIGHT)
    model = script(folder, [repair], [call("bash", command=CHECK["run"])], [say("Repaired.")])
    workspace = DirectoryWorkspace(kind="directory", path=str(source))
    request = DelegationRequest(
        task="Repair the code",
        model=model,
        workspace=workspace,
        environment="package",
        verify=[CHECK],
        verify_early=False,
    )
    id, begun = await bench.accept(request), time.time()
    await carry_out(bench.services, id)
    turns = [each.at.timestamp() for each in await bench.events(id) if isinstance(each.event, TurnStarted)]
    result = await bench.result(id)
    assert turns, result.summary
    return result, turns[0] - begun
