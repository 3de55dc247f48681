"""Runs that were written by somebody who had not read this corpus: rows of JSON, carried out like every other case.

`python -m tests.verdict.strangers FILE [NAME…] [--parallel N]` prints what the checks make of each. A row has ``files``
(the workspace before the run; each a text, or an object with ``base64``), ``turns`` (the model's replies: text, or
["tool", name, arguments]), ``verify``, ``request`` and ``task`` (of the request), ``git`` (whether the workspace is a
repository with one commit), ``prepare`` (a command line that makes the rest of it) and ``expect``. KIT in a command is
a virtual environment with runners of tests and checkers, NODE a folder with those of npm. Both are installed at their
first use.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deputize.shared.delegation import ToolAgentResult
from tests.network.git_server import git
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.verdict.cases import TOOLCHAINS

PLACE = Path("/var/tmp/deputize-strangers")
"""Outside of the checkout, as it is large, and readable for the user of sandboxes."""
OF_PYTHON = ("pytest", "pytest-xdist", "pytest-cov", "coverage", "tox", "nox", "build", "ruff", "mypy")
OF_NODE = ("jest", "vitest", "mocha", "typescript")
DATA = Path(__file__).with_name("data")
TASK = "Fix the bug that the tests show"


@dataclass(frozen=True)
class Kits:
    """What the rows find installed."""

    python: Path
    node: Path

    @classmethod
    def installed(cls, place: Path = PLACE) -> Kits:
        """Returns both, installed where they are not; that needs the registries of Python and npm."""
        kits = cls(place / "python", place / "node")
        if not (kits.python / "done").exists():
            subprocess.run([sys.executable, "-m", "venv", kits.python], check=True)
            subprocess.run([kits.python / "bin/pip", "install", "-q", *OF_PYTHON], check=True)
            (kits.python / "done").touch()
        if not (kits.node / "done").exists():
            kits.node.mkdir(parents=True, exist_ok=True)
            (kits.node / "package.json").write_text('{"private": true}\n')
            subprocess.run(["npm", "install", "--silent", "--no-fund", *OF_NODE], cwd=kits.node, check=True)
            (kits.node / "done").touch()
        return kits

    def named_in(self, line: str) -> str:
        """Returns a command line with the places of both in it."""
        library = next((self.python / "lib").glob("python3*"), self.python)
        line = line.replace("KIT/lib/python3.11", str(library))
        return line.replace("KIT/", f"{self.python}/").replace("NODE/", f"{self.node}/")


@dataclass(frozen=True)
class Stranger:
    """One row."""

    name: str
    row: Mapping[str, Any]

    def __str__(self) -> str:
        return self.name

    @property
    def expects(self) -> str:
        """``not verified``, ``not refuted``, or the verdict that a reader expects."""
        return self.row["expect"]

    def fits(self, result: ToolAgentResult) -> bool:
        """Whether the verdict is the one that is expected, or a better one; or none that must not come."""
        verdict = result.verification.verdict
        if self.expects.startswith("not "):
            return verdict != self.expects.removeprefix("not ")
        return verdict in (self.expects, "verified")

    @property
    def turns(self) -> list[Any]:
        return [
            [say(block) if isinstance(block, str) else call(block[1], **block[2]) for block in turn]
            for turn in self.row["turns"]
        ]

    async def run(self, bench: Bench, folder: Path, kits: Kits) -> ToolAgentResult:
        """Carries the row out; its files are made below ``folder``."""
        fields = await asyncio.to_thread(self.fields, folder / "project", kits)
        return await bench.run(model=script(folder, *self.turns), **fields)

    def fields(self, folder: Path, kits: Kits) -> dict[str, Any]:
        """Makes the files in the folder; returns the fields of the request, but for the model."""
        self._lay_out(folder, kits)
        named = [{**check, "run": kits.named_in(check["run"])} if "run" in check else check for check in self._checks]
        task = self.row.get("task") or TASK
        return {"task": task, "workspace": str(folder), "verify": named, **self.row["request"]}

    @property
    def _checks(self) -> Sequence[Mapping[str, Any]]:
        return [{"kind": "command", "run": each} if isinstance(each, str) else each for each in self.row["verify"]]

    def _lay_out(self, folder: Path, kits: Kits) -> None:
        folder.mkdir(parents=True)
        for path, text in self.row["files"].items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(text.encode() if isinstance(text, str) else b64decode(text["base64"]))
        if line := self.row.get("prepare"):
            subprocess.run(kits.named_in(line), shell=True, cwd=folder, check=True)
        if self.row.get("git"):
            for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "before")):
                git(folder, *words)


def strangers_in(path: Path, names: Collection[str] = ()) -> list[Stranger]:
    """Returns the rows of a file, of which one of the names is a part of the row's; without names all."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    return [Stranger(row["name"], row) for row in rows if not names or any(name in row["name"] for name in names)]


@asynccontextmanager
async def bench_with(kits: Kits) -> AsyncGenerator[Bench]:
    """A worker with the kits, over a Redis of its own."""
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        server = RedisProcess(Path(folder))
        try:
            show = [str(path) for path in (kits.python, kits.node, *TOOLCHAINS)]
            async with open_bench(server.url, Path(folder, "home"), sandbox={"show": show}) as bench:
                yield bench
        finally:
            server.kill()


async def main(path: Path, names: Collection[str], parallel: int) -> int:
    """Prints a line for each row of a file; returns how many have the verdict that must not come."""
    return await try_all(strangers_in(path, names), parallel)


async def try_all(rows: Sequence[Stranger], parallel: int) -> int:
    """Carries rows out, prints a line for each, and returns how many have the verdict that must not come."""
    wrong, slots = 0, asyncio.Semaphore(parallel)
    async with bench_with(kits := Kits.installed()) as bench:

        async def tried(row: Stranger) -> bool:
            async with slots:
                with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
                    result = await row.run(bench, Path(folder), kits)
            found = result.verification
            why = "; ".join(dict.fromkeys([found.why or "-", *(check.why for check in found.checks)]))
            sign = ("ok  " if row.fits(result) else "FAIL") + (" success" if result.success else "        ")
            print(f"{sign}  {row.name:40} {row.expects:13} {found.verdict:13} {why[:300]}", flush=True)
            return row.fits(result)

        wrong = (await asyncio.gather(*map(tried, rows))).count(False)
    print(f"{len(rows) - wrong} of {len(rows)} as expected")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.verdict.strangers", description="Runs by others.")
    parser.add_argument("file", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only rows whose names have one of these in them")
    parser.add_argument("--parallel", type=int, default=2, metavar="N", help="rows at the same time; default: 2")
    given = parser.parse_args()
    sys.exit(min(1, asyncio.run(main(given.file, given.names, given.parallel))))
