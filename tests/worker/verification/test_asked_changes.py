"""What the words of a task ask to change of tests and settings, and what they do not."""

from __future__ import annotations

import pytest

from deputize.worker.verification.asked_changes import AskedChanges, asked_changes
from deputize.worker.verification.kept_python import reaches_further
from deputize.worker.verification.reports.states import Place, Report, TestState
from deputize.worker.verification.runners.execution import Observed
from deputize.worker.verification.verdict import Observations

OF_TESTS = "tests/test_price.py"
ASKING = {
    "Update the tests.": {"tests"},
    "Please update the snapshot": {"data"},
    "Rename f to g and adapt the unit tests.": {"tests"},
    "Remove wk1 and its tests": {"tests"},
    "Remove the export to wk1: the function, its test and its mention in the README.": {"tests"},
    "Delete tests/test_old.py": {"path"},
    "Correct the test": {"tests"},
    "test_1900 is wrong: it was no leap year": {"path"},
    "The expected output is outdated": {"tests"},
    "The snapshots are stale": {"data"},
    "3 times 5 is 15: the test is wrong.": {"tests"},
    "1900 was no leap year, so test_1900 is wrong. Fix it.": {"path"},
    "The tests still expect the old form": {"tests"},
    'Titles are h2: update `tests/golden.txt` and "tests/titles.txt"': {"path"},
    "Titles are h2. tests/golden.txt still has the old form": {"path"},
    "Print JSON in place of text, and update tests/expected.out": {"path"},
    "Convert the package to ES modules, with its tests": {"tests"},
    "Make the package an ES module, tests included": {"tests"},
    "Change price.py and the expected numbers in its tests.": {"path", "tests"},
    "Adapt and extend the tests": {"tests"},
    "Rename the parser with the tests": {"tests"},
    "Replace requests by httpx, with all tests": {"tests"},
    "Let test_draw be skipped where the library is missing": {"path"},
    "Accept the new output": {"output"},
    "Fix the fixtures in conftest.py": {"fixtures"},
    "Add a target lint to the Makefile": {"path"},
    "Register the marker slow in pytest.ini": {"path"},
    "Write a target check that compares the outputs": {"path"},
    "Create the make targets docs and lint": {"path"},
    "Fix the rounding.\n\nThen regenerate the golden files.": {"data"},
    "Titles:\n- make them h2\n- update the snapshot": {"data"},
}
NOT_ASKING = [
    "Fix the bug that the tests show",
    "Repair the code, not the tests",
    "Make the tests pass",
    "Fix the failing tests",
    "Repair the tests",
    "Fix total() and its tests",
    "Correct the failing test",
    "Update the code so that the tests pass",
    "Update the code, the tests fail",
    "Adapt the code to the tests",
    "Update price.py for the new tests",
    "Correct price.py as tests/test_price.py shows",
    "Change price.py to satisfy the docs and the tests",
    "Change the code and run the tests",
    "Change the code rather than the tests",
    "Replace the parser; the tests stay",
    "Update the docs. Do not touch the tests.",
    "Update the tests of a, but never those of b in tests/test_b.py",
    "Rename a to b without changing its tests",
    "Refactor price.py; tests/test_price.py must keep passing",
    "tests/test_price.py fails",
    "Update the test dependencies",
    "Change the test command in the README",
    "Change the way in which tests are run",
    "Accept the new output format of the API",
    "Record the output of each run",
    "Write the missing tests for cost()",
    "Add tests for cost()",
    "Rewrite the parser, with tests",
    "Convert print to logging with new tests",
    "Extend the parser with a test",
    "Drop support for 3.8, with all tests passing",
    "Remove the bug that tests/test_a.py shows",
    "Ändere die Tests",
    "price.text(3) prints 'total: 4'. The output is wrong.",
    "test_some is wrong half of the time: there is a bug in total().",
    "test_some is wrong: there is a bug in total().",
    "test_some is wrong.\n\nThere is a bug in total().",
    "Sometimes the tests are wrong",
    "Half of the tests are wrong",
    "The tests are wrong? Fix total().",
    "The tests are wrong. Fix total().",
    "If total(1) is 2, the test is wrong",
    "Find out whether test_total is wrong",
    "The expected output is wrong in production. Fix total().",
    "test output is wrong",
    "The expected output is wrong",
    "test_some is wrong. Mend total().",
    "The output of tests/run.py is wrong",
    "The result of tests/run.py is wrong, fix parser.py",
    "tests in tests/a.py are wrong? No, the code is.",
    "The snapshot is wrong",
    "tests still have failures: fix the code",
    "The tests still have the old bug",
    "tests/test_price.py still shows the bug",
    "tests/test_price.py still contains a failure",
    "Users report: 'Update the tests.'",
    "Users report: Update the tests.",
    "Users report “The tests are wrong.” Find the reason.",
    "The log has\n> Update the snapshot.\nFind the reason",
    "The log has\n```\nUpdate the snapshot.\n```\nFind the reason",
    "The log has `Update the snapshot`. Find the reason",
    "Update the tests?",
]


@pytest.mark.parametrize("task", ASKING)
def test_a_task_asks_for_changes_of_tests_and_settings(task: str) -> None:
    assert asked_changes(task).objects == ASKING[task]


@pytest.mark.parametrize("task", NOT_ASKING)
def test_a_task_that_only_speaks_of_tests_asks_for_no_change_of_them(task: str) -> None:
    asked = asked_changes(task)
    assert not asked.objects - {"path"}
    assert not any("test" in path for path in asked.paths)


@pytest.mark.parametrize(
    ("task", "held", "not_held"),
    [
        ("Update the tests", [OF_TESTS, "a.test.js"], ["conftest.py", "price.py", "run_tests.sh"]),
        ("Update the snapshot", ["__snapshots__/a.snap", "tests/expected/a.txt"], [OF_TESTS, "package.json"]),
        ("Fix the fixture", ["conftest.py", "tests/fixtures/a.json"], [OF_TESTS]),
        ("Change tests/test_price.py", [OF_TESTS, f"packages/a/{OF_TESTS}"], ["tests/test_cost.py"]),
        ("test_total is wrong", [OF_TESTS], ["tests/test_cost.py"]),
        ("Add a target lint to the Makefile", ["Makefile"], [OF_TESTS, "package.json"]),
        ("Write a target lint", ["Makefile"], [OF_TESTS, "package.json", "Makefile.inc"]),
        ("Update sitecustomize.py", [], ["sitecustomize.py"]),
    ],
)  # fmt: skip
def test_only_what_is_asked_for_is_held(task: str, held: list[str], not_held: list[str]) -> None:
    texts = {OF_TESTS: "def test_total():\n    assert total(1) == 1\n"}
    asked = asked_changes(task)
    assert [path for path in (*held, *not_held) if asked.hold(path, texts.get(path, ""))] == held


@pytest.mark.parametrize(
    ("task", "accepted"),
    [
        ("Update the tests", set[str]()),
        ("Correct the test", {"assertion"}),
        ("Remove f and its tests", {"cases"}),
        ("Rewrite the tests of retry", {"names", "cases"}),
        ("Let test_draw be skipped", {"skip"}),
    ],
)
def test_a_verb_decides_what_may_be_done_to_tests(task: str, accepted: set[str]) -> None:
    assert asked_changes(task).accepted == accepted


@pytest.mark.parametrize(
    ("added", "is_further"),
    [
        ("\ndef test_b():\n    assert True\n", False),
        ("\ndef pytest_runtest_call(item):\n    pass\n", True),
        ("\ndef load_tests(*_):\n    return []\n", True),
        ("\nimport os\nos._exit(0)\n", True),
        ("\ndef (", True),
    ],
)
def test_a_changed_file_of_tests_gets_no_new_hooks(added: str, is_further: bool) -> None:
    before = "def test_a():\n    assert 1\n"
    assert reaches_further(before, before + added) is is_further


def seen(**tests: TestState) -> Observed:
    report = Report()
    for id, state in tests.items():
        report.add(f"a.py::{id}", state, Place("/workspace/a.py", id))
    return Observed("green", 0, report=report)


PASSING = seen(a="passed", b="passed")


@pytest.mark.parametrize(
    ("now", "where_broken", "accepted", "holds"),
    [
        (PASSING, "", set[str](), True),
        (PASSING, "b", set[str](), False),
        (PASSING, "ab", {"cases"}, False),
        (seen(a="passed"), "", set[str](), False),
        (seen(a="passed"), "", {"cases"}, True),
        (seen(c="passed", d="passed"), "", {"cases", "names"}, True),
        (seen(c="passed", d="passed"), "d", {"cases", "names"}, False),
        (seen(c="passed"), "", {"cases", "names"}, False),
    ],
)
def test_changed_tests_depend_on_the_code_as_those_before(
    now: Observed, where_broken: str, accepted: set[str], holds: bool
) -> None:
    observed = Observations(PASSING, now, accepted=accepted)
    assert observed.notices_as_much((), [f"a.py::{name}" for name in where_broken]) is holds


def test_a_removed_test_that_the_code_still_passes_is_lost() -> None:
    observed = Observations(PASSING, seen(a="passed", b="failed"))
    assert observed.lost(seen(b="passed")) == {"a.py::a"}
    assert not observed.lost(seen(a="passed"))


def test_a_test_that_turned_green_depends_on_the_code() -> None:
    observed = Observations(seen(a="failed", b="passed"), PASSING)
    assert observed.notices_as_much((), ())
    assert not observed.notices_as_much((), ["a.py::a"])


def test_a_task_without_words_about_tests_asks_for_nothing() -> None:
    assert asked_changes("Fix the rounding of total()") == AskedChanges()
