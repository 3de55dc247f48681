"""Which executions a check has, and what follows where two of them differ."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.facts import Check
from deputize.worker.verification.executions import has_time
from deputize.worker.verification.runners.known import Instrumented
from tests.runs.bench import Bench, call, say, script
from tests.waiting import until
from tests.worker.verification.held import CANARY, GOOD, begun, grounds
from tests.worker.verification.priced import FIX, PROJECT, project
from tests.worker.verification.reporting import reported

ANSWERED = "until [ -s answer ]; do sleep 0.02; done; cat answer; grep -q good answer && grep -q good a.txt"
"""Waits for the answer of the test, which may be another one each time."""
UNITTEST = {"kind": "command", "run": "python3 -m unittest -q"}


async def answered(bench: Bench, id: str, running: asyncio.Task[Any], answers: Mapping[str, Sequence[str]]) -> Check:
    """Gives each execution on a ground the next of its answers; an empty one is none."""
    given: dict[Path, str] = {}

    async def ended() -> ToolAgentResult | None:
        for path in sorted(grounds(bench, id), key=lambda path: path.stat().st_mtime if path.exists() else 0):
            name = path.name.partition("-")[0]
            if path not in given:
                number = sum(other.name.startswith(f"{name}-") for other in given)
                given[path] = answers[name][number] if number < len(answers[name]) else ""
            with suppress(FileNotFoundError):  # removed meanwhile
                if given[path]:
                    (path / "answer").write_text(given[path])
        return (await bench.store.get(id)).result

    result = await until(ended, 60)
    await running
    return result.verification.checks[0]


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ({"base": ["good", "good"], "candidate": ["good", "good"], "canary": ["good"]}, "evidence"),
        ({"base": ["good", "good"], "candidate": ["good", "bad"], "canary": ["good"]}, "inconclusive"),
    ],
)
async def test_a_candidate_that_passes_is_executed_again(
    bench: Bench, tmp_path: Path, answers: Mapping[str, Sequence[str]], outcome: str
) -> None:
    id, running = await begun(
        bench,
        script(tmp_path, [GOOD], [say("done")]),
        verify=[{"kind": "command", "run": ANSWERED, "canary": CANARY}],
        max_verify_rounds=0,
    )
    check = await answered(bench, id, running, answers)
    assert (check.outcome, check.base, check.candidate, check.canary) == (outcome, "red", "green", "red")


async def test_a_base_that_did_not_end_in_time_is_executed_again(bench: Bench, tmp_path: Path) -> None:
    asked = {"kind": "command", "run": ANSWERED, "timeoutSeconds": 3}
    (tmp_path / "project").mkdir()
    (tmp_path / "project/a.txt").write_text("good\n")
    edit = call("write_file", path="b.txt", content="\n")
    id, running = await begun(
        bench,
        script(tmp_path, [edit], [say("done")]),
        verify=[asked],
        workspace=str(tmp_path / "project"),
        max_verify_rounds=0,
    )
    answers = {"base": ["", "good"], "candidate": ["good", "good"], "canary": ["good"]}
    check = await answered(bench, id, running, answers)
    assert (check.outcome, check.base, check.candidate) == ("inconclusive", "trouble", "green")
    assert "gave different results in two executions" in check.why


DROPPED = PROJECT["tests/test_price.py"].replace("def test_none", "def none")
MOVED = "mkdir checks && mv tests/test_price.py checks/test_price.py && touch checks/__init__.py"


@pytest.mark.parametrize(
    ("also", "outcome", "words"),
    [
        (call("write_file", path="tests/__init__.py", content="raise SystemExit(1)\n"), "inconclusive", "not succeed"),
        (call("write_file", path="tests/test_price.py", content=DROPPED), "inconclusive", "1 test less passes"),
        (call("bash", command="rm tests/test_price.py"), "inconclusive", "not succeed"),
        (call("bash", command="printf '    def test_new(self): pass\\n' >> tests/test_price.py"), "evidence", ""),
        (call("bash", command=MOVED), "evidence", ""),
    ],
    ids=["tests that cannot load", "a test less", "no tests", "a test more", "tests moved"],
)
@pytest.mark.costly
async def test_what_succeeds_on_restored_files_alone_is_no_evidence_for_what_was_left(
    bench: Bench, tmp_path: Path, also: Any, outcome: str, words: str
) -> None:
    result = await bench.run(
        model=script(tmp_path, [FIX, also], [say("done")]),
        verify=[UNITTEST],
        workspace=project(tmp_path / "project"),
        max_verify_rounds=0,
    )
    (check,) = result.verification.checks
    assert (check.outcome, check.candidate) == (outcome, "green")
    assert words in check.why
    assert result.verification.restored


@pytest.mark.costly
async def test_a_compiled_test_that_only_the_candidate_compiles_anew_speaks_against_nothing(
    bench: Bench, tmp_path: Path
) -> None:
    folder = Path(project(tmp_path / "project"))
    (folder / "tests/test_late.py").write_text(PROJECT["tests/test_price.py"].replace("Price(", "Late("))
    (folder / "tests/__pycache__").mkdir()
    for version in range(11, 20):  # the sandbox may have another one than this
        (folder / f"tests/__pycache__/test_late.cpython-3{version}.pyc").write_bytes(b"of another file")
    result = await bench.run(
        model=script(tmp_path, [FIX], [say("done")]),
        verify=["python3 -m unittest -q tests.test_price && python3 -m unittest -q tests.test_late"],
        workspace=str(folder),
        max_verify_rounds=0,
    )
    assert result.verification.verdict == "verified", result.verification


@pytest.mark.parametrize(
    ("only", "ran"),
    [
        ({"test_a.py::test_one", "test_a.py::test_more[2]"}, {"test_one": "failed", "test_more[2]": "passed"}),
        ({"test_gone.py::test"}, {"test_one": "failed", "test_more[1]": "passed", "test_more[2]": "passed"}),
        (set[str](), {"test_one": "failed", "test_more[1]": "passed", "test_more[2]": "passed"}),
    ],
)
async def test_of_known_tests_some_are_executed_alone_and_all_where_these_are_gone(
    tmp_path: Path, only: set[str], ran: Mapping[str, str]
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_a.py").write_text(
        "import pytest\ndef test_one(): assert 0\n@pytest.mark.parametrize('n', [1, 2])\ndef test_more(n): pass\n"
    )
    how = Instrumented("pytest", only=frozenset(only))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    report = await reported(how, command, project)
    assert report is not None
    assert {id.partition("::")[2]: state for id, state in report.tests.items()} == ran


COUNTS = "answers = iter([15, 0])\ndef total(count, each):\n    return next(answers)\n"
FIRST_TIME = """\
import os

first = not os.path.exists("seen")

def total(count, each):
    open("seen", "w").close()
    return count * each if first else count + each
"""


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        ("def total(count, each):\n    return count * each\n", "verified"),
        (FIRST_TIME, "inconclusive"),
        (COUNTS.replace("[15, 0]", "[0, 15, 0]"), "inconclusive"),
        (COUNTS, "refuted"),
    ],
)
@pytest.mark.costly
async def test_what_turned_green_is_run_again_on_the_same_files_in_reverse(
    bench: Bench, tmp_path: Path, code: str, verdict: str
) -> None:
    result = await bench.run(
        model=script(tmp_path, [call("write_file", path="price.py", content=code)], [say("done")]),
        verify=[UNITTEST],
        workspace=project(tmp_path / "project"),
        max_verify_rounds=0,
        accept=["tests", "place"],
    )
    assert result.verification.verdict == verdict, result.verification
    assert ("run again on the same files" in result.verification.checks[0].why) == (verdict == "inconclusive")


def test_no_further_phase_begins_once_half_of_the_time_of_all_checks_is_spent() -> None:
    assert has_time([60, 60, 60, 60, 59], 60)
    assert not has_time([60, 60, 60, 60, 60], 60)
