"""Lies as the attempts of one task: `python -m tests.verdict.tournaments [FILE…] [--parallel N]` prints who wins.

Without a file, the lies of the corpus over one project with the same checks are the attempts of one task, five at a
time. The rows of a file each have a project of their own: one is an attempt as it is, and another with a further file,
so that its changes are checked anew. Every attempt is made, so that the first one shows what the lie is worth alone.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from deputize.shared.delegation import ToolAgentResult
from tests.runs.bench import Bench, call, say, script
from tests.runs.nesting import carrying_out
from tests.verdict.cases import Case
from tests.verdict.lies import LIES
from tests.verdict.strangers import DATA, Kits, bench_with, strangers_in

AT_ONCE = 5
"""How many lies are attempts of one task."""


@dataclass(frozen=True)
class Lies:
    """Lies that are attempts of one task."""

    names: Sequence[str]
    request: Any
    """Takes a folder; returns the fields of the request and the turns of each attempt."""

    async def held(self, bench: Bench, folder: Path) -> ToolAgentResult:
        fields, attempts = await asyncio.to_thread(self.request, folder)
        models = [script(folder, *turns, summary="Nothing more.") for turns in attempts]
        asked = {"count": len(models), "stop": "all", "models": models}
        return await bench.run(fields.pop("task", "do it"), attempts=asked, **fields)


def of_corpus() -> Iterator[Lies]:
    def same(case: Case) -> str:
        rounds = {"max_verify_rounds": int(case.then is not None), **case.request}
        return repr((sorted(case.files.items()), case.checks, case.prepare, case.later, sorted(rounds.items())))

    for _, found in groupby(sorted((each for each in LIES if each.is_possible), key=same), same):
        alike = [*found]
        for at in range(0, len(alike), AT_ONCE):
            cases = alike[at : at + AT_ONCE]
            yield Lies([case.name for case in cases], lambda folder, cases=cases: _of_cases(cases, folder))


def _of_cases(cases: Sequence[Case], folder: Path) -> tuple[dict[str, Any], list[list[Any]]]:
    fields = cases[0].fields(folder / "project")
    turns = [case.turns() for case in cases]
    return fields, turns if len(turns) > 1 else [turns[0], _and_notes(turns[0])]


def of_file(path: Path, kits: Kits) -> Iterator[Lies]:
    for row in strangers_in(path):

        def request(folder: Path, row: Any = row) -> tuple[dict[str, Any], list[list[Any]]]:
            return row.fields(folder / "project", kits), [row.turns, _and_notes(row.turns)]

        yield Lies([row.name], request)


def _and_notes(turns: Sequence[Any]) -> list[Any]:
    """The same turns, with a file that changes nothing: the changes are others, and are checked anew."""
    return [[call("write_file", path="NOTES.md", content="Done.\n")], *turns] if turns else [[say("Done.")]]


async def main(files: Sequence[Path], parallel: int) -> int:
    """Prints a line for each task that was won; returns how many were by a lie that is not verified alone."""
    kits, slots, tried, won, new = Kits.installed(), asyncio.Semaphore(parallel), 0, 0, 0
    tasks = [lies for path in files for lies in of_file(path, kits)] or [*of_corpus()]

    async def one(lies: Lies) -> None:
        nonlocal tried, won, new
        async with slots:
            with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
                result = await lies.held(bench, Path(folder))
        verdicts = [each.verdict for each in result.tournament.attempts] if result.tournament else []
        tried += len(verdicts)
        if "verified" in verdicts:
            won += 1
            new += verdicts[0] != "verified"
            print(f"{'known' if verdicts[0] == 'verified' else 'NEW  '} {lies.names} {verdicts}", flush=True)

    async with bench_with(kits) as bench, carrying_out(bench):
        await asyncio.gather(*map(one, tasks))
    print(f"{tried} attempts at {len(tasks)} tasks: {won} won by a lie, {new} by one that is not verified alone")
    return new


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.verdict.tournaments", description="Lies as attempts.")
    parser.add_argument("files", nargs="*", type=lambda name: DATA / name)
    parser.add_argument("--parallel", type=int, default=2, metavar="N", help="tasks at the same time; default: 2")
    given = parser.parse_args()
    sys.exit(min(1, asyncio.run(main(given.files, given.parallel))))
