"""Which failures on the base are those of a check that cannot start, and which may be the task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deputize.shared.events import TurnStarted
from deputize.shared.facts import GroundState
from deputize.worker.verification.reports.states import Place, Report
from deputize.worker.verification.runners.execution import Observed
from deputize.worker.verification.startable import why_not_started, why_still_red
from tests.runs.bench import Bench, call, say, script
from tests.worker.verification.held import GOOD

NOT_LOADED = Report(tests={"tests/test_a.py": "failed"}, places={"tests/test_a.py": Place("/workspace/test_a.py", "")})
ONE_FAILS = Report(
    tests={"test_a.py::test_a": "failed"}, places={"test_a.py::test_a": Place("/workspace/test_a.py", "test_a")}
)
MAVEN = (
    "Cannot access central in offline mode and the artifact org.x:y:jar:3.4.0 has not been downloaded from it before."
)
MODULE = "E   ModuleNotFoundError: No module named '{}'"


@pytest.mark.parametrize(
    ("state", "exit_code", "output", "report", "why"),
    [
        ("trouble", 127, "bash: line 1: pytest: command not found\n", None, "the program pytest is not installed"),
        ("trouble", 127, "bash: line 3: /opt/kit/bin/tox: No such file or directory\n", None, "the program /opt/kit"),
        ("trouble", 127, "> test\n> jest\n\nsh: 1: jest: not found\n", None, "the program jest is not installed"),
        ("trouble", 126, "bash: line 1: /opt/x: Permission denied\n", None, "the program /opt/x cannot be executed"),
        ("red", 2, "make: pytest: No such file or directory\nmake: *** [Makefile:2: test] Error 127\n", None, "pytest"),
        ("red", 1, "/usr/bin/python3: No module named pytest\n", None, "pytest is not installed"),
        ("red", 2, MODULE.format("yaml"), NOT_LOADED, "the project's dependency yaml is not installed"),
        ("red", 2, MODULE.format("some_thing.deep"), NOT_LOADED, "dependency some_thing is"),
        ("red", 1, "Error: Cannot find module 'ms'", None, "the project's dependency ms is not installed"),
        ("trouble", 127, "bash: line 1: poetry: command not found\n", None, "without it: leave it out of the command"),
        ("red", 1, MAVEN, None, "the artifact org.x:y:jar:3.4.0 is not in"),
        ("red", 1, "> No cached version of org.x:y:1 available for offline mode.", None, "artifact org.x:y:1 is not"),
        ("red", 1, "==13==LeakSanitizer has encountered a fatal error.\n", None, "needs ptrace"),
        ("red", 1, "==13==LeakSanitizer has encountered a fatal error.\n", Report(tests={"a": "passed"}), ""),
        ("red", 1, "==13==ERROR: LeakSanitizer: detected memory leaks\n", None, ""),
        # what the run may be asked to make
        ("trouble", 127, "bash: line 1: ./build/app: No such file or directory\n", None, ""),
        ("trouble", 127, "sh: 0: cannot open run_tests.sh: No such file\n", None, ""),
        ("trouble", 126, "bash: line 1: ./run.sh: Permission denied\n", None, ""),
        ("red", 1, "/usr/bin/python3: No module named price\n", None, ""),
        ("red", 2, MODULE.format("price"), NOT_LOADED, ""),
        ("red", 1, "Error: Cannot find module './sum.js'", None, ""),
        ("red", 2, MODULE.format("own"), NOT_LOADED, ""),
        ("red", 2, MODULE.format("below.deep"), NOT_LOADED, ""),
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
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "own"\n[tool.below]\n')
    (tmp_path / "src/own").mkdir(parents=True)
    (tmp_path / "below.py").touch()
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
    if reason == "completed" and run == "no-such-runner -q":
        assert "the program no-such-runner is not installed" in result.verification.checks[0].why
    if reason == "checks_cannot_start":
        assert (result.status, result.turn_count, result.usage.total) == ("failed", 0, 0)
        assert await bench.seen(result, TurnStarted) == []
        assert "the program no-such-runner is not installed" in result.errors[0]
        assert "--verify-early no" in result.errors[0]
        assert result.verification.verdict == "inconclusive"


NETWORK, GIT = "it needs the network, which checks do not have", "it needs a git repository"
PIP = "ERROR: Could not find a version that satisfies x\nERROR: No matching distribution found for x"
NPM = "npm error code EAI_AGAIN\nnpm error errno EAI_AGAIN"
ONE_PASSES = Report(tests={"a": "failed", "b": "passed"})


@pytest.mark.parametrize(
    ("before", "after", "report", "expected"),
    [
        (PIP, PIP, None, (NETWORK, True)),
        (NPM, NPM, None, (NETWORK, True)),
        ("curl: (6) Could not resolve host: x", "curl: (6) Could not resolve host: y", None, (NETWORK, True)),
        (
            "go: module lookup disabled by GOPROXY=off",
            "go: module lookup disabled by GOPROXY=off",
            None,
            (NETWORK, True),
        ),
        ("fatal: not a git repository (or any)", "fatal: not a git repository (or any)", None, (GIT, True)),
        (
            "/bin/python3: No module named tox",
            "/bin/python3: No module named tox",
            None,
            ("tox is not installed", True),
        ),
        ("1 error in 0.21s", "1 error in 3.5s", None, ("it prints the same", False)),
        ("", "", None, ("it prints nothing", False)),
        # what the run has changed, or may change
        ("SyntaxError in a.py", NPM, None, ("", False)),
        (NPM, "assert 1 == 2", None, ("", False)),
        ("one thing", "another", None, ("", False)),
        (NPM, NPM, ONE_PASSES, ("", False)),
    ],
)
def test_what_stays_red_has_the_reason_that_fits(
    tmp_path: Path, before: str, after: str, report: Report | None, expected: tuple[str, bool]
) -> None:
    seen = [Observed("red", 1, output, report=report) for output in (before, after)]
    assert why_still_red(seen[0], seen[1], tmp_path) == expected


@pytest.mark.parametrize(
    ("run", "turns", "why"),
    [
        ("python3 -m pip download --no-cache-dir no-such-package-x", 2, NETWORK),
        ("echo the same; false", 3, "it fails as it did before the run: it prints the same"),
    ],
)
async def test_what_no_change_could_help_does_not_go_back_to_the_agent(
    bench: Bench, tmp_path: Path, run: str, turns: int, why: str
) -> None:
    model = script(tmp_path, [GOOD], [say("done")], [say("again")])
    result = await bench.run(model=model, verify=[{"kind": "command", "run": run}], max_verify_rounds=1)
    assert (result.verification.verdict, result.turn_count) == ("inconclusive", turns)
    assert why in result.verification.checks[0].why


@pytest.mark.parametrize(
    ("declared", "verdict"), [("some-new-package>=1\n", "inconclusive"), ("another\n", "refuted"), ("", "refuted")]
)
@pytest.mark.costly
async def test_a_dependency_that_the_run_adds_is_not_installed_and_does_not_refute_it(
    bench: Bench, tmp_path: Path, declared: str, verdict: str
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "price.py").write_text("")
    (folder / "test_price.py").write_text(
        "import unittest, price\nclass T(unittest.TestCase):\n    def test(self): pass\n"
    )
    work = [call("write_file", path="price.py", content="import some_new_package\n")]
    work += [call("write_file", path="requirements.txt", content=declared)] if declared else []
    check = {"kind": "command", "run": "python3 -m unittest -q"}
    model = script(tmp_path, work, [say("done")])
    result = await bench.run(model=model, workspace=str(folder), verify=[check], max_verify_rounds=0)
    assert result.verification.verdict == verdict, result.verification.checks[0].why
