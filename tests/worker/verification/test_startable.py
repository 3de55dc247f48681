"""Which failures on the base are those of a check that cannot start, and which may be the task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deputize.shared.events import TurnStarted
from deputize.shared.facts import GroundState
from deputize.worker.verification.commands import Observed
from deputize.worker.verification.reports import Place, Report
from deputize.worker.verification.startable import why_not_started
from tests.runs.bench import Bench, say, script
from tests.worker.verification.held import GOOD

NOT_LOADED = Report(tests={"tests/test_a.py": "failed"}, places={"tests/test_a.py": Place("/workspace/test_a.py", "")})
ONE_FAILS = Report(
    tests={"test_a.py::test_a": "failed"}, places={"test_a.py::test_a": Place("/workspace/test_a.py", "test_a")}
)
MODULE = "E   ModuleNotFoundError: No module named '{}'"


@pytest.mark.parametrize(
    ("state", "exit_code", "output", "report", "why"),
    [
        ("trouble", 127, "bash: line 1: pytest: command not found\n", None, "there is no program pytest"),
        ("trouble", 127, "bash: line 3: /opt/kit/bin/tox: No such file or directory\n", None, "no program /opt/kit"),
        ("trouble", 127, "> test\n> jest\n\nsh: 1: jest: not found\n", None, "there is no program jest"),
        ("trouble", 126, "bash: line 1: /opt/x: Permission denied\n", None, "there is no program /opt/x"),
        ("red", 2, "make: pytest: No such file or directory\nmake: *** [Makefile:2: test] Error 127\n", None, "pytest"),
        ("red", 1, "/usr/bin/python3: No module named pytest\n", None, "pytest is not installed"),
        ("red", 2, MODULE.format("yaml"), NOT_LOADED, "the project's dependency yaml is not installed"),
        ("red", 2, MODULE.format("some_thing.deep"), NOT_LOADED, "dependency some_thing is"),
        ("red", 1, "Error: Cannot find module 'ms'", None, "the project's dependency ms is not installed"),
        # what the run may be asked to make
        ("trouble", 127, "bash: line 1: ./build/app: No such file or directory\n", None, ""),
        ("trouble", 127, "sh: 0: cannot open run_tests.sh: No such file\n", None, ""),
        ("trouble", 126, "bash: line 1: ./run.sh: Permission denied\n", None, ""),
        ("red", 1, "/usr/bin/python3: No module named price\n", None, ""),
        ("red", 2, MODULE.format("price"), NOT_LOADED, ""),
        ("red", 1, "Error: Cannot find module './sum.js'", None, ""),
        # tests that are red
        ("red", 1, MODULE.format("yaml"), ONE_FAILS, ""),
        ("red", 1, "bash: line 1: pytest: command not found\n", None, ""),
        ("green", 0, "bash: line 1: pytest: command not found\n", None, ""),
    ],
)  # fmt: skip
def test_a_check_cannot_start_where_something_is_not_installed(
    tmp_path: Path, state: GroundState, exit_code: int, output: str, report: Report | None, why: str
) -> None:
    (tmp_path / "requirements.txt").write_text("PyYAML>=6\nsome-thing[all]==2\n")
    (tmp_path / "package.json").write_text('{"dependencies": {"ms": "2.1.3"}}')
    found = why_not_started(Observed(state, exit_code, output, report=report), tmp_path)
    assert why in found
    assert bool(found) is bool(why)


@pytest.mark.parametrize(
    ("run", "more", "reason"),
    [
        ("no-such-runner -q", {}, "checks_cannot_start"),
        ("no-such-runner -q", {"verify_early": False}, "completed"),
        ("./made-by-the-run", {}, "completed"),
        ("grep good a.txt", {}, "completed"),
    ],
)
async def test_a_run_whose_checks_cannot_start_ends_before_its_first_turn(
    bench: Bench, tmp_path: Path, run: str, more: dict[str, Any], reason: str
) -> None:
    check = {"kind": "command", "run": run}
    result = await bench.run(model=script(tmp_path, [GOOD], [say("done")]), verify=[check], max_verify_rounds=0, **more)
    assert result.termination_reason == reason
    if reason == "checks_cannot_start":
        assert (result.status, result.turn_count, result.usage.total) == ("failed", 0, 0)
        assert await bench.seen(result, TurnStarted) == []
        assert "there is no program no-such-runner" in result.errors[0]
        assert "--verify-early no" in result.errors[0]
        assert result.verification.verdict == "inconclusive"
