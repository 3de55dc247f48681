"""Reports of runners: what each writes is read, and what is not a report is none."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from deputize.worker.verification.reports.report_files import of_tap, of_text, remove_old
from deputize.worker.verification.reports.states import (
    Place,
    Report,
    of_cargo,
    of_go,
    of_jest,
    of_lines,
    qualified,
    steady,
)
from deputize.worker.verification.runners.known import Instrumented
from tests.worker.verification.reporting import reported

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
        {"a.py::a": "failed"},
        {"a.py::a": Place("/workspace/a.py", "a")},
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
async def test_unittest_names_the_file_that_it_cannot_read_and_no_test(
    tmp_path: Path, arguments: list[str], unread: str
) -> None:
    for name, text in UNIT_TESTS.items():
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(text)
    how = Instrumented("python3 -m unittest")
    report = await reported(how, [sys.executable, "-m", f"{how.name}_unittest", *arguments], tmp_path / "project")
    assert report is not None
    failed = {id: report.places[id] for id in report.of("failed")}
    file = tmp_path / "project/pack/test_unread.py"
    assert failed.pop(f"{file}::unittest.loader._FailedTest.{unread}") == Place(str(file), "")
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
        "sum-1 unittests src/lib.rs::tests::adds": "passed",
        "sum-1 unittests src/lib.rs::tests::none": "failed",
        "sum-1 unittests src/lib.rs::tests::later": "skipped",
        "sum-1 unittests src/lib.rs::tests::panics": "passed",
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
        ("npx jest --ci", "npx jest --ci --json --outputFile=/opt/check/NAME.0"),
        ("node_modules/.bin/jest", "node_modules/.bin/jest --json --outputFile=/opt/check/NAME.0"),
        ("jest && rm x", "jest --json --outputFile=/opt/check/NAME.0 && rm x"),
        ("(cd a; jest) | tee b", "(cd a; jest --json --outputFile=/opt/check/NAME.1) | tee b"),
        ("jest --json", "jest --json"),
        ("FOO=1 npx mocha -b t", "FOO=1 npx mocha -b t --reporter /opt/check/NAME_mocha.cjs"),
        ("mocha --reporter=dot", "mocha --reporter=dot"),
        ("cd b && ctest -j2", "cd b && ctest -j2 --output-junit /opt/report/NAME.1"),
        ("vendor/bin/phpunit", "vendor/bin/phpunit --log-junit /opt/check/NAME.0"),
        ("PYTEST_ADDOPTS='-x -q' pytest", "PYTEST_ADDOPTS=\"-p NAME \"'-x -q' pytest"),
        ("npx vitest run", "npx vitest run --reporter=default --reporter=json --outputFile.json=/opt/check/NAME.0"),
        ("cd a && go test ./...", "cd a && go test -json ./..."),
        ("go test -json ./...", "go test -json ./..."),
        ("cargo test", "cargo test"),
        ("cd a && cargo -q test --offline; ls -q", "cd a && cargo test --offline; ls -q"),
        ("cargo +stable test --quiet -p own --lib -- -q", "cargo +stable test -p own --lib --"),
        ("cargo build -q && cargo t -q", "cargo build -q && cargo t"),
        ("jestful", "jestful"),
    ],
)
def test_a_known_runner_is_made_to_report(command: str, line: str) -> None:
    assert Instrumented(command, name="NAME").line == line
    plain = Instrumented(command, name="NAME", plain=True)
    assert (plain.line, plain.variables, plain.report(Path("/nowhere"), "x")) == (command, {}, (None, "x"))


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("prove -l t :: --all", "prove --reverse -l t :: --all"),
        ("cd a && /usr/bin/prove t", "cd a && /usr/bin/prove --reverse t"),
        ("ctest -j2", "ctest -j2 --output-junit /opt/report/NAME.0 --schedule-random"),
        ("phpunit a", "phpunit a --log-junit /opt/check/NAME.0 --order-by=reverse"),
        ("go test ./...", "go test -json -shuffle=on -count=1 ./..."),
        ("cargo test", "cargo test"),
    ],
)
def test_a_runner_that_has_an_option_for_it_runs_its_tests_in_another_order(command: str, line: str) -> None:
    assert Instrumented(command, name="NAME", is_reversed=True).line == line


@pytest.mark.parametrize(
    ("script", "command", "line"),
    [
        ("jest", "npm test --silent", "npm test --silent -- --json --outputFile=/opt/check/NAME.0"),
        ("tsc && jest --ci", "npm run test", "npm run test -- --json --outputFile=/opt/check/NAME.0"),
        ("mocha", "yarn test", "yarn test --reporter /opt/check/NAME_mocha.cjs"),
        ("vitest run && echo", "pnpm test", "pnpm test"),
        ("node a.js", "npm test", "npm test"),
    ],
)
def test_a_script_of_package_json_is_followed(script: str, command: str, line: str) -> None:
    manifest = json.dumps({"scripts": {"test": script}}).encode()
    assert Instrumented(command, name="NAME", read=lambda _: manifest).line == line


@pytest.mark.parametrize(
    ("command", "is_inherited"),
    [("node --test a.mjs", False), ("cd a && node --test", False), ("node --test && node b.js", True)],
)
def test_what_node_starts_inherits_no_reporter_where_the_command_can_have_it(command: str, is_inherited: bool) -> None:
    how = Instrumented(command, name="NAME")
    assert ("--test-reporter" in how.variables["NODE_OPTIONS"]) is is_inherited
    assert ("--test --test-reporter" in how.line) is not is_inherited


def test_an_empty_environment_gets_what_reports_need() -> None:
    line = Instrumented('env -i PATH="$PATH" python -m pytest', name="NAME").line
    assert line.startswith("env -i PYTHONPATH='/opt/check' PYTEST_ADDOPTS='-p NAME' PERL_TEST_HARNESS")
    assert line.endswith(' PATH="$PATH" python -m pytest')


def test_a_reporter_that_the_project_has_chosen_for_node_stands_alone() -> None:
    assert "--test-reporter" in Instrumented("npm test").variables["NODE_OPTIONS"]
    assert "test-reporter" in Instrumented("node --test").line
    chosen = Instrumented("node --test --test-reporter=tap")
    assert chosen.line == chosen.command
    assert "--test-reporter" not in chosen.variables["NODE_OPTIONS"]
    script = b'{"scripts": {"test": "node --test --test-reporter=tap"}}'
    assert "--test-reporter" not in Instrumented("npm test", read=lambda _: script).variables["NODE_OPTIONS"]


@pytest.mark.parametrize(
    ("command", "script", "is_restricted"),
    [
        ("node --experimental-permission --allow-fs-read=/workspace a.js", "", True),
        ("node --permission --test", "", True),
        ("npm test", "node --permission a.js", True),
        ("node a.js --permissions", "", False),
    ],
)
def test_node_that_may_read_little_loads_nothing_from_elsewhere(command: str, script: str, is_restricted: bool) -> None:
    manifest = json.dumps({"scripts": {"test": script}}).encode()
    how = Instrumented(command, name="NAME", read=lambda _: manifest)
    assert ("/opt/check" not in how.variables["NODE_OPTIONS"] + how.line) is is_restricted


@pytest.mark.parametrize(
    ("id", "file", "expected"),
    [
        ("tests/test_a.py::test_x", "/workspace/tests/test_a.py", "tests/test_a.py::test_x"),
        ("test_a.py::C::test_x", "/workspace/packages/one/test_a.py", "packages/one/test_a.py::C::test_x"),
        ("test_a.py", "/workspace/packages/one/test_a.py", "packages/one/test_a.py"),
        ("tests.test_a.C.test_x", "/workspace/tests/test_a.py", "tests.test_a.C.test_x"),
        ("test_a.C.test_x", "/workspace/two/test_a.py", "two/test_a.py::test_a.C.test_x"),
        ("test_a.C.test_x", "", "test_a.C.test_x"),
    ],
)
def test_an_id_is_that_of_no_other_file(id: str, file: str, expected: str) -> None:
    assert qualified(id, file) == expected


def test_two_sessions_of_one_command_have_tests_of_their_own() -> None:
    lines = [
        *({"begin": 1}, {"item": "test_a.py::test_x", "file": "/workspace/one/test_a.py", "name": "test_x"}),
        *({"test": "test_a.py::test_x", "state": "failed"}, {"end": 1}),
        *({"begin": 1}, {"item": "test_a.py::test_x", "file": "/workspace/two/test_a.py", "name": "test_x"}),
        *({"test": "test_a.py::test_x", "state": "passed"}, {"end": 0}),
    ]
    report = of_lines(map(json.dumps, lines))
    assert report is not None
    assert report.tests == {"one/test_a.py::test_x": "failed", "two/test_a.py::test_x": "passed"}
    assert report.finished
    crates = [
        "Running unittests src/lib.rs (target/debug/deps/one-0123456789abcdef)\ntest a ... FAILED",
        "Running unittests src/lib.rs (target/debug/deps/two-fedcba9876543210)\ntest a ... ok",
    ]
    found = of_cargo("\n".join(crates).splitlines())
    assert found is not None
    assert found.tests == {"one unittests src/lib.rs::a": "failed", "two unittests src/lib.rs::a": "passed"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("t::a[3f2b8c1e-0a1b-4c2d-8e3f-001122334455]", "t::a[aaaaaaaa-0a1b-4c2d-8e3f-001122334455]"),
        ("t::a[0011223344556677889900aabbccddee]", "t::a[ffffffffffffffffffffffffffffffff]"),
        ("t::a[<C object at 0x7f31c0ffee10>]", "t::a[<C object at 0x55d0deadbeef>]"),
        ("t::a[2026-11-28T01:21:16.123Z]", "t::a[2027-01-02 03:04:05+01:00]"),
        ("t::a[1764292876.42]", "t::a[1764292999]"),
    ],
)
def test_ids_that_differ_each_time_are_the_same(first: str, second: str) -> None:
    assert steady(first) == steady(second)
    assert steady("t::a[12-2026-x1]") == "t::a[12-2026-x1]"


JUNIT = """<testsuites><testsuite name="s"><testcase classname="A" name="a"/><testcase classname="A" name="b"><failure/>
</testcase><testcase classname="A" name="c"><skipped/></testcase><testcase name="d" status="fail"/></testsuite>
<testsuite name="loads not" errors="1"/></testsuites>"""


def test_junit_and_tap_are_read() -> None:
    report = of_text(JUNIT)
    assert report is not None
    states = {"A::a": "passed", "A::b": "failed", "A::c": "skipped", "d": "failed", "loads not": "failed"}
    assert report.tests == states
    tap = of_text("1..4\nok 1 - a\nnot ok 2 - b\nok 3 # skip none\n    not ok 1 - nested\nok 4 c\n")
    assert tap is not None
    assert tap.tests == {"a": "passed", "b": "failed", "3": "skipped", "c": "passed"}
    unnamed = of_tap("ok 1\nnot ok 2\n#   failed\nok 3\n1..3\n")
    assert unnamed is not None
    assert unnamed.tests == {"1": "passed", "2": "failed", "3": "passed"}
    short = of_tap("1..3\nok 1 - a\n", "t/a.t")
    assert short is not None
    assert short.tests == {"t/a.t::a": "passed", "t/a.t": "failed"}
    assert of_text('<!DOCTYPE a [<!ENTITY b "c">]><testsuite/>') is None
    assert of_text("<html/>") is None
    assert of_text("nothing") is None


def test_reports_of_builds_and_of_a_check_are_those_of_this_run(tmp_path: Path) -> None:
    for path in ("one/target/surefire-reports/TEST-A.xml", "two/build/test-results/test/TEST-A.xml", "own/report.xml"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(JUNIT)
    build = Instrumented("mvn -q test").report(tmp_path / "none", "", tmp_path)[0]
    assert build is not None
    assert {"one::A::a", "two::A::b"} <= build.tests.keys()
    own = Instrumented("make", named="own/report.xml")
    assert len((own.report(tmp_path / "none", "", tmp_path)[0] or Report()).tests) == 5
    remove_old(tmp_path, "own/report.xml")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    gone = own.report(tmp_path / "none", "", tmp_path)[0]
    assert gone is not None
    assert not gone.finished
    (tmp_path / "secret.xml").write_text(JUNIT)
    (tmp_path / "ground").mkdir()
    (tmp_path / "ground/own").symlink_to(tmp_path)
    linked = Instrumented("make", named="own/secret.xml")
    remove_old(tmp_path / "ground", "own/secret.xml")
    assert (linked.report(tmp_path / "none", "", tmp_path / "ground")[0] or Report()).tests == {}
    assert (tmp_path / "secret.xml").exists()


@pytest.mark.parametrize(
    ("words", "files", "tests"),
    [
        (["python3", "-W", "error", "-X", "dev", "-m", "unittest", "-q", "test_a"], {}, {"test_a.A.test_x": "passed"}),
        (
            ["python3", "manage.py"],
            {"manage.py": "import unittest\nunittest.main('test_a')\n"},
            {"test_a.A.test_x": "passed"},
        ),
        (["node", "--test"], {}, {"::adds": "passed", "::d::x": "failed", "::d::y": "skipped"}),
        (["node", "sum.test.js"], {}, {"::adds": "passed", "::d::x": "failed", "::d::y": "skipped"}),
    ],
)
async def test_runners_report_however_they_are_started(
    tmp_path: Path, words: list[str], files: Mapping[str, str], tests: Mapping[str, str]
) -> None:
    if shutil.which(words[0]) is None:
        pytest.skip(f"there is no {words[0]}")
    project = tmp_path / "project"
    project.mkdir()
    sources = {
        "test_a.py": "import unittest\n\nclass A(unittest.TestCase):\n    def test_x(self): pass\n",
        "sum.test.js": "const { test, describe, it } = require('node:test');\ntest('adds', () => {});\n"
        "describe('d', () => { it('x', () => { throw new Error('a'); }); it.skip('y', () => {}); });\n",
        **files,
    }
    for name, text in sources.items():
        (project / name).write_text(text)
    how = Instrumented(" ".join(words))
    report = await reported(how, ["sh", "-c", how.line], project)
    assert report is not None
    assert report.finished
    assert {end: state for end in tests for id, state in report.tests.items() if id.endswith(end)} == tests


def test_a_report_that_is_a_link_or_a_directory_is_none(tmp_path: Path) -> None:
    how = Instrumented("ctest")
    (tmp_path / "other").write_text('{"testResults": []}')
    (tmp_path / f"{how.name}.0").symlink_to(tmp_path / "other")
    assert how.report(tmp_path, "out") == (None, "out")
    (tmp_path / f"{how.name}.0").unlink()
    (tmp_path / f"{how.name}.0").mkdir()
    assert how.report(tmp_path, "out") == (None, "out")


@pytest.mark.parametrize(
    ("command", "text", "output"),
    [
        ("ctest", '{"testResults": [3]}', ""),
        ("go test", "", '{"Action": []}'),
    ],
)
def test_a_report_that_something_else_has_written_is_not_finished(
    tmp_path: Path, command: str, text: str, output: str
) -> None:
    how = Instrumented(command)
    (tmp_path / f"{how.name}.0").write_text(text)
    report, printed = how.report(tmp_path, output)
    assert report is not None
    assert (report.tests, report.finished, printed) == ({}, False, output)
