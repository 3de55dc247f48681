"""Reports of runners: what each writes is read, and what is not a report is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
