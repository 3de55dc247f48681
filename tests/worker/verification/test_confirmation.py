"""Control and canary: which tests are executed on them, and what follows where these need others before them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.runs.bench import call, open_bench, say, script
from tests.worker.verification.priced import FIX, project

STEPS = """\
import unittest

class Steps(unittest.TestCase):
    done = []
    def step(self, number):
        self.done.append(number)
"""
EACH = "    def test_{0:02}(self): self.step({0}); self.assertEqual({1}, {0})\n"
COMMAND = "python3 -m unittest > said 2>&1; code=$?; grep -o '^Ran [0-9]*' said > PIPE; exit $code"
MANY = 28


@pytest.mark.costly
@pytest.mark.parametrize(
    ("seen", "counts"),
    [("{0}", [20, 20]), ("len(self.done) - 1", [20, 20, 30, 30])],
    ids=["each test alone passes", "tests need those before them"],
)
async def test_the_tests_that_are_broken_are_executed_alone_on_both_and_all_where_that_differs(
    redis_url: str, tmp_path: Path, seen: str, counts: list[int]
) -> None:
    folder, shown = Path(project(tmp_path / "project")), tmp_path / "shown"
    steps = STEPS + "".join(EACH.replace("{1}", seen).format(number) for number in range(MANY))
    (folder / "tests/test_steps.py").write_text(steps)
    shown.mkdir()
    os.mkfifo(pipe := shown / "pipe")
    pipe.chmod(0o666)
    reading = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        async with open_bench(redis_url, tmp_path / "home", sandbox={"show": [str(shown)]}) as bench:
            result = await bench.run(
                model=script(tmp_path, [FIX, call("bash", command="true")], [say("done")]),
                verify=[COMMAND.replace("PIPE", str(pipe))],
                workspace=str(folder),
                max_verify_rounds=0,
            )
        assert result.verification.verdict == "verified", result.verification
        ran = [int(line.split()[1]) for line in os.read(reading, 1 << 16).decode().splitlines()]
        base, again, candidate, *others = ran
        assert (base, again, candidate) == (MANY + 2, 1, MANY + 2)
        assert sorted(others) == [1, *counts]  # one is the test that turned green, once more
    finally:
        os.close(reading)
