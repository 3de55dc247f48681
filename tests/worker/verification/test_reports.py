"""Reports of runners: what each writes is read, and what is not a report is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deputize.worker.verification.python_runners import UNITTEST
from deputize.worker.verification.reports import Place, of_cargo, of_go, of_jest, of_lines
from deputize.worker.verification.runners import Instrumented

JEST = {
    "testResults": [
        {
            "name": "/workspace/sum.test.js",
            "status": "failed",
            "assertionResults": [
                {"fullName": "sum adds", "title": "adds", "status": "passed"},
                {"fullName": "sum of none", "title": "of none", "status": "failed"},
                {"fullName": "sum later", "title": "later", "status": "pending"},
            ],
        },
        {"name": "/workspace/broken.test.js", "status": "failed", "assertionResults": []},
    ]
}
GO = [
    {"Action": "start", "Package": "example.org/a"},
    {"Action": "output", "Package": "example.org/a", "Test": "TestOne", "Output": "--- PASS: TestOne\n"},
    {"Action": "pass", "Package": "example.org/a", "Test": "TestOne"},
    {"Action": "fail", "Package": "example.org/a", "Test": "TestTwo/part"},
    {"Action": "skip", "Package": "example.org/a", "Test": "TestThree"},
    {"Action": "fail", "Package": "example.org/b"},
    {"Action": "pass", "Package": "example.org/c"},
]
CARGO = """\
   Compiling sum v0.1.0
     Running unittests src/lib.rs (target/debug/deps/sum-1)
running 3 tests
test tests::adds ... ok
test tests::none ... FAILED
test tests::later ... ignored, not yet
test tests::panics - should panic ... ok
   Doc-tests sum
test src/lib.rs - add (line 3) ... ok
test result: FAILED. 1 passed; 1 failed
"""


def test_the_worst_state_of_a_test_counts_and_an_end_must_follow_every_begin() -> None:
    lines = [{"begin": 1}, {"item": "a", "file": "/workspace/a.py", "name": "a"}, {"test": "a", "state": "passed"}]
    report = of_lines(map(json.dumps, [*lines, {"test": "a", "state": "failed"}, {"test": "a", "state": "passed"}]))
    assert report is not None
    assert (report.tests, report.places, report.finished) == (
        {"a": "failed"},
        {"a": Place("/workspace/a.py", "a")},
        False,
    )
    ended = of_lines(map(json.dumps, [*lines, {"end": 0}]))
    assert ended is not None
    assert ended.finished


def test_a_test_that_passes_and_was_never_collected_is_no_whole_report() -> None:
    lines = [{"begin": 1}, {"test": "a", "state": "passed"}, {"end": 0}]
    report = of_lines(map(json.dumps, lines))
    assert report is not None
    assert not report.finished


UNIT_TESTS = {
    "pack/__init__.py": "",
    "pack/test_unread.py": "import none\n",
    "pack/test_setup.py": "import unittest\nclass A(unittest.TestCase):\n"
    "    def setUpClass(): 1 / 0\n    def test_a(self): pass\n",
    "pack/test_good.py": "import unittest\nclass B(unittest.TestCase):\n    def test_b(self): pass\n",
}


@pytest.mark.parametrize(
    ("arguments", "unread"),
    [
        (["pack.test_setup", "pack.test_unread", "pack.test_good"], "test_unread"),
        (["discover", "-s", "pack", "-t", "."], "pack.test_unread"),
        (["discover", "-s", "pack"], "test_unread"),
    ],
)
def test_unittest_names_the_file_that_it_cannot_read_and_no_test(
    tmp_path: Path, arguments: list[str], unread: str
) -> None:
    for name, text in UNIT_TESTS.items():
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(text)
    (tmp_path / "runner.py").write_text(UNITTEST)
    command = [sys.executable, "-m", "runner", *arguments]
    variables = {"PYTHONPATH": str(tmp_path), "CHECK_REPORT": str(tmp_path / "report")}
    subprocess.run(command, cwd=tmp_path / "project", env=variables, capture_output=True, check=False)
    report = of_lines((tmp_path / "report").read_text().splitlines())
    assert report is not None
    failed = {id: report.places[id] for id in report.of("failed")}
    assert failed.pop(f"unittest.loader._FailedTest.{unread}") == Place(
        str(tmp_path / "project/pack/test_unread.py"), ""
    )
    assert [place.name for place in failed.values()] == [""]
    assert (len(report.of("passed")), report.finished, report.stopped) == (1, True, False)


@pytest.mark.parametrize("line", ["", "no report", "[]", "3", '{"test": "a", "state": "passed"}', "[" * 100_000])
def test_what_no_runner_began_is_no_report(line: str) -> None:
    assert of_lines([line]) is None


def test_jest_and_vitest_report_files_with_their_tests() -> None:
    report = of_jest(json.dumps(JEST))
    assert report is not None
    assert report.tests == {
        "/workspace/sum.test.js::sum adds": "passed",
        "/workspace/sum.test.js::sum of none": "failed",
        "/workspace/sum.test.js::sum later": "skipped",
        "/workspace/broken.test.js": "failed",
    }
    assert of_jest("{}") is None


def test_go_reports_tests_and_packages_that_fail() -> None:
    report, printed = of_go([*map(json.dumps, GO), "go: warning"])
    assert report is not None
    assert report.tests == {
        "example.org/a::TestOne": "passed",
        "example.org/a::TestTwo/part": "failed",
        "example.org/a::TestThree": "skipped",
        "example.org/b": "failed",
    }
    assert printed == "--- PASS: TestOne\ngo: warning\n"
    assert of_go(["sh: go: not found"]) == (None, "sh: go: not found\n")


def test_cargo_prints_each_test_below_its_binary() -> None:
    report = of_cargo(CARGO.splitlines())
    assert report is not None
    assert report.tests == {
        "unittests src/lib.rs::tests::adds": "passed",
        "unittests src/lib.rs::tests::none": "failed",
        "unittests src/lib.rs::tests::later": "skipped",
        "unittests src/lib.rs::tests::panics": "passed",
        "sum::src/lib.rs - add (line 3)": "passed",
    }
    assert of_cargo(["error: no such command: `test`"]) is None


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("pytest -q", "pytest -q"),
        ("PYTHONPATH=src pytest", "PYTHONPATH=/opt/check:src pytest"),
        ("python3 -B -m unittest -q", "python3 -B -m NAME_unittest -q"),
        ("python -m unittest.mock", "python -m unittest.mock"),
        ("python -I -m unittest", "python -I -m unittest"),
        ("npx jest --ci", "npx jest --ci --json --outputFile=/opt/report/NAME"),
        ("node_modules/.bin/jest", "node_modules/.bin/jest --json --outputFile=/opt/report/NAME"),
        ("jest && rm x", "jest && rm x"),
        ("npx vitest run", "npx vitest run --reporter=default --reporter=json --outputFile.json=/opt/report/NAME"),
        ("cd a && go test ./...", "cd a && go test -json ./..."),
        ("go test -json ./...", "go test -json ./..."),
        ("cargo test", "cargo test"),
        ("jestful", "jestful"),
    ],
)
def test_a_known_runner_is_made_to_report(command: str, line: str) -> None:
    assert Instrumented(command, name="NAME").line == line
    plain = Instrumented(command, name="NAME", plain=True)
    assert (plain.line, plain.variables, plain.report(Path("/nowhere"), "x")) == (command, {}, (None, "x"))


def test_a_report_that_is_a_link_or_a_directory_is_none(tmp_path: Path) -> None:
    how = Instrumented("pytest")
    (tmp_path / "other").write_text('{"begin": 1}\n{"end": 0}\n')
    (tmp_path / how.name).symlink_to(tmp_path / "other")
    assert how.report(tmp_path, "out") == (None, "out")
    (tmp_path / how.name).unlink()
    (tmp_path / how.name).mkdir()
    assert how.report(tmp_path, "out") == (None, "out")


@pytest.mark.parametrize(
    ("command", "text", "output"),
    [
        ("pytest", '{"begin": 1}\n{"item": "a"}\n{"end": 0}\n', ""),
        ("jest", '{"testResults": [3]}', ""),
        ("jest", '{"testResults": [{"assertionResults": [{"status": []}]}]}', ""),
        ("go test", "", '{"Action": []}'),
    ],
)
def test_a_report_that_something_else_has_written_is_not_finished(
    tmp_path: Path, command: str, text: str, output: str
) -> None:
    how = Instrumented(command)
    (tmp_path / how.name).write_text(text)
    report, printed = how.report(tmp_path, output)
    assert report is not None
    assert (report.tests, report.finished, printed) == ({}, False, output)
