"""Real packages of PyPI and npm with their own tests: an agent repairs one, and checks without a network verify that.

One line of the published files is broken. The set-up installs what was downloaded before. The second run finds what the
first one has prepared. No turn waits for the checks on the base. It needs the network, so `make bench` leaves it out.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deputize.shared.events import TurnStarted
from deputize.shared.request import DelegationRequest, DirectoryWorkspace
from deputize.worker.task import carry_out
from tests.benchmarks.number import Number
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import Bench, call, open_bench, say, script


@dataclass(frozen=True)
class Package:
    """A package, the line that is broken, and how its own tests are run."""

    name: str
    fetch: Callable[[str, Path, Path], Path]
    """Downloads it and what its tests need, the latter into the second folder; returns its files."""
    setup: str
    inputs: Sequence[str]
    check: str
    file: str
    right: str
    wrong: str

    def broken(self, folder: Path, needed: Path) -> Path:
        """Returns the package's files with one wrong line."""
        source = self.fetch(self.name, folder, needed)
        text = (source / self.file).read_text("utf-8")
        assert text.count(self.right) == 1
        (source / self.file).write_text(text.replace(self.right, self.wrong), "utf-8")
        return source


def from_pypi(name: str, folder: Path, needed: Path) -> Path:
    _pip("--no-deps", "--no-binary", name.partition("==")[0], name, "-d", str(folder))
    _pip("pytest", "pytest-cov", "-d", str(needed))
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def from_npm(name: str, folder: Path, needed: Path) -> Path:
    """Has npm fill a cache, and leaves the lock file that it wrote."""
    subprocess.run(["npm", "pack", "--silent", name], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    source = folder / "package"
    # With the addresses in the lock file, `npm ci` finds each archive in the cache, whatever the registry is.
    install = ["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-omit-lockfile-registry-resolved"]
    install += ["--cache", str(needed)]
    subprocess.run(install, cwd=source, check=True)
    shutil.rmtree(source / "node_modules")
    return source


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", *arguments], check=True)


_WHEELS = "python3 -m venv .venv && .venv/bin/pip install -q --no-index --find-links {needed} pytest pytest-cov"
PACKAGES = (
    Package(
        name="semver==3.0.2",
        fetch=from_pypi,
        setup=_WHEELS,
        inputs=["pyproject.toml"],
        check="PYTHONPATH=src python -m pytest -q tests",
        file="src/semver/version.py",
        right="return cls(self._major + 1)",
        wrong="return cls(self._major + 2)",
    ),
    Package(
        name="idna==3.10",
        fetch=from_pypi,
        setup=_WHEELS,
        inputs=["pyproject.toml"],
        check="python -m pytest -q tests",
        file="idna/core.py",
        right="if len(label) > 63:",
        wrong="if len(label) > 62:",
    ),
    Package(
        name="fastify-plugin@5.0.1",
        fetch=from_npm,
        setup="cp -r {needed} $TMPDIR/npm && npm ci --offline --ignore-scripts --no-audit --cache $TMPDIR/npm",
        inputs=["package.json", "package-lock.json"],
        check="node --test",
        file="plugin.js",
        right="options.encapsulate !== true",
        wrong="options.encapsulate === true",
    ),
)


async def measure(runs: int) -> list[Number]:
    return [number for package in PACKAGES for number in await _measured(package, runs)]


async def _measured(package: Package, runs: int) -> list[Number]:
    verified, first, later = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder, needed = Path(name), Path(name, "needed")
        source = package.broken(folder, needed)
        table = {"setup": package.setup.format(needed=needed), "show": [str(needed)], "inputs": [*package.inputs]}
        own: Any = {"environments": {"package": table}}
        redis = RedisProcess(folder / "redis")
        try:
            for number in range(runs):
                async with open_bench(redis.url, folder / f"home-{number}", **own) as bench:
                    for times in (first, later):
                        result, seconds = await _repair(bench, folder, source, package)
                        times.append(seconds)
                        verified.append(result.verification.verdict == "verified")
                        print(package.name, result.verification.verdict, result.verification.checks[0].why, flush=True)
        finally:
            redis.close()
    what = f"{package.name}, repaired and checked by its own tests without a network: verified"
    return [
        Number(what, "", verified, at_least=1),
        Number("… taken by a worker → the first turn, with the set-up", "s", first),
        Number("… the same of the second run", "s", later, at_most=1.5),
    ]


async def _repair(bench: Bench, folder: Path, source: Path, package: Package) -> tuple[Any, float]:
    """Returns the result of a run that repairs the line, and the seconds until its first turn."""
    repair = call("edit_file", path=package.file, old_string=package.wrong, new_string=package.right)
    model = script(folder, [repair], [call("bash", command=package.check)], [say("Repaired.")])
    workspace = DirectoryWorkspace(kind="directory", path=str(source))
    request = DelegationRequest(
        task="Repair the code",
        model=model,
        workspace=workspace,
        environment="package",
        verify=[{"kind": "command", "run": package.check}],
        verify_early=False,
    )
    id, begun = await bench.accept(request), time.time()
    await carry_out(bench.services, id)
    turns = [each.at.timestamp() for each in await bench.events(id) if isinstance(each.event, TurnStarted)]
    result = await bench.result(id)
    assert turns, result.summary
    return result, turns[0] - begun
