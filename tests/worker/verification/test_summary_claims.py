"""What steps and file changes show about a summary: no grammar of a language, so each case stands in two of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from deputize.shared.delegation import Step, StepStatus
from deputize.shared.facts import Check, FileChange, StepChange, SummaryClaim, Verification
from deputize.shared.wire import now
from deputize.worker.verification.summary_claims import MAX_FILES, Work, summary_claims

CHANGED = FileChange(path="src/pricing.py", change="modified")
EDITED = StepChange(path="src/pricing.py", change="modified")


def step(kind: str, id: str = "call", *, ok: bool = True, denied: bool = False, **more: Any) -> Step:
    types = {"bash": "bash", "write_file": "write", "edit_file": "edit", "read_file": "read"}
    status = StepStatus.COMPLETED if ok and not denied else StepStatus.FAILED
    fields = {"id": id, "type": types[kind], "title": kind, "tool_name": kind, "turn_index": 1, "timestamp": now()}
    return Step.model_validate({**fields, "status": status, "denied": denied, **more})


def bash(command: str, result: str = "", *, ok: bool = True, id: str = "tests") -> Step:
    return step("bash", id, ok=ok, arguments={"command": command}, result=result)


def edit(path: str = "src/pricing.py", **more: Any) -> Step:
    changes = [StepChange(path=path, change="modified")] if more.get("ok", True) and not more.get("denied") else []
    return step("edit_file", "edit", arguments={"path": path}, changes=changes, **more)


def judged(
    summary: str, steps: Sequence[Step], *changes: FileChange, verification: Verification | None = None
) -> list[SummaryClaim]:
    return summary_claims(summary, Work(steps, changes, verification or Verification(), ["build/out.txt"]))


def checked(verdict: str, *checks: Check) -> Verification:
    return Verification.model_validate({"verdict": verdict, "checks": checks})


def ran(outcome: str, candidate: str, strength: str = "tests", **more: Any) -> Check:
    item = {"kind": "command", "run": "true"}
    return Check.model_validate(
        {"item": item, "outcome": outcome, "candidate": candidate, "strength": strength, **more}
    )


def of_tests(found: list[SummaryClaim]) -> tuple[str, str, str | None] | None:
    return next(((each.verdict, each.why, each.evidence) for each in found if each.claim == "tests pass"), None)


FAILING = "FAILED tests/test_sum.py::test_total\n1 failed, 3 passed"
AFTER = "files changed after the last run of tests"


@pytest.mark.parametrize("summary", ["All tests pass.", "Alle Tests laufen.", "すべてのテストに合格しました。"])
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([edit(), bash("pytest -q", "4 passed")], ("proved", None)),
        ([edit(), bash("python3 -m unittest -q 2>&1 | tail -3", "Ran 3 tests in 0.1s\n\nOK")], ("proved", None)),
        ([edit(), bash("pytest -q | tail -1", "")], ("unproved", "did not report")),
        ([bash("pytest -q", "4 passed"), edit()], ("unproved", AFTER)),
        ([bash("pytest -q", FAILING, ok=False), edit()], ("unproved", AFTER)),
        ([edit(), bash("pytest -q", FAILING, ok=False)], ("refuted", "the last run of tests failed")),
        ([edit(), bash("cargo test 2>&1 | tail", "test result: FAILED. 0 passed; 2 failed")], ("refuted", "failed")),
        ([edit(), bash("npm test", "not ok 1 - adds", ok=False)], ("refuted", "failed")),
        ([edit(), bash("pytest -q", "4 passed"), bash("pytest -q", FAILING, ok=False)], ("refuted", "failed")),
        ([edit(), bash("pytest -q", FAILING, ok=False), bash("pytest -q", "4 passed")], ("proved", None)),
        ([edit(), bash("python3 script.py", "ok")], ("unproved", "no command ran tests")),
        ([edit(), bash("pytest --version", "pytest 9")], ("unproved", "no command ran tests")),
    ],
)
def test_the_last_run_of_tests_and_what_changed_after_it_decide(
    summary: str, steps: list[Step], expected: tuple[str, str | None]
) -> None:
    found = of_tests(judged(summary, steps, CHANGED))
    assert found is not None
    assert found[0] == expected[0]
    assert (expected[1] or "passed") in found[1]
    assert found[2] == (None if "no command" in found[1] else "tests")


@pytest.mark.parametrize("summary", ["`test_total` still fails.", "1 test fails, as before.", "Noch rot: test_total"])
def test_a_summary_that_reports_the_failure_is_not_refuted(summary: str) -> None:
    found = of_tests(judged(summary, [edit(), bash("pytest -q", FAILING, ok=False)], CHANGED))
    assert found is not None
    assert found[0] == "unproved"


@pytest.mark.parametrize(
    ("summary", "shown"),
    [
        ("All tests pass.", "refuted"),
        ("Alle Tests laufen.", "refuted"),
        ("すべてのテストに合格しました。", "refuted"),
        ("I ran the 4 tests, and each of them is green.", "refuted"),
        ("The suite is red.", "unproved"),
        ("2 tests fail.", "unproved"),
        ("The tests fail.", "unproved"),
        ("Die Tests schlagen fehl.", "unproved"),
        ("Zwei Tests sind rot, darunter `test_total`.", "unproved"),
        ("テスト test_total が失敗します。", "unproved"),
        ("The tests end with an AssertionError.", "unproved"),
    ],
)
def test_without_a_change_a_summary_that_names_tests_and_none_of_the_failures_is_refuted(
    summary: str, shown: str
) -> None:
    output = "FAIL: test_total (test_sum.T)\nAssertionError: 1 != 3\nRan 4 tests in 0.1s\n\nFAILED (failures=2)"
    found = of_tests(judged(summary, [bash("python3 -m unittest", output, ok=False)]))
    assert found == (shown, "the last run of tests failed", "tests")


@pytest.mark.parametrize(
    "path", ["__pycache__/a.cpython-311.pyc", "src/.pytest_cache/v", "node_modules/.cache/x", "build/out.txt"]
)
def test_a_cache_or_an_ignored_file_is_no_change_after_the_last_run_of_tests(path: str) -> None:
    after = step("bash", "import", arguments={"command": "x"}, changes=[StepChange(path=path, change="created")])
    red, green = bash("pytest -q", FAILING, ok=False), bash("pytest -q", "4 passed")
    assert of_tests(judged("All tests pass.", [edit(), red, after], CHANGED)) == (
        "refuted",
        "the last run of tests failed",
        "tests",
    )
    assert [each.verdict for each in judged("All tests pass.", [edit(), green, after], CHANGED)] == ["proved"]


def test_a_file_that_a_tool_makes_again_is_no_change_without_tests() -> None:
    made = FileChange(path="__pycache__/a.cpython-311.pyc", change="created")
    assert judged("There are no tests.", [bash("python3 a.py", "ok")], made) == []


def test_go_and_jest_report_failures_by_a_line_that_begins_with_fail() -> None:
    for command in ("go test ./...", "npx jest"):
        steps = [edit(), bash(command, "FAIL\tshop [build failed]", ok=False)]
        assert [each.verdict for each in judged("All tests pass.", steps, CHANGED)] == ["refuted"]


def test_a_run_without_tests_and_without_changes_has_no_claim_about_tests() -> None:
    assert judged("The bug is in line 12.", [step("read_file", arguments={"path": "a.py"})]) == []


MET = "the requested checks are {}"
RED = "tests of the requested checks failed"


@pytest.mark.parametrize(
    ("verdict", "check", "shown", "why"),
    [
        ("verified", ran("evidence", "green"), "proved", MET),
        ("passed", ran("no_regression", "green"), "proved", MET),
        ("refuted", ran("refuted", "red"), "refuted", RED),
        ("refuted", ran("tampered", "green"), "refuted", RED),
        ("refuted", ran("no_regression", "green"), "unproved", MET),
        ("inconclusive", ran("no_regression", "green"), "unproved", MET),
        ("inconclusive", ran("preexisting", "red"), "refuted", RED),
        ("inconclusive", ran("preexisting", "red", "exitCode", tests={"missing": ["a"]}), "refuted", RED),
        ("improved", ran("improved", "red"), "refuted", RED),
    ],
)
def test_a_check_that_ran_tests_counts_before_what_the_run_tested_itself(
    verdict: str, check: Check, shown: str, why: str
) -> None:
    other = ran("no_regression", "green", "exitCode")
    for own in ([edit(), bash("pytest -q", FAILING, ok=False)], [edit(), bash("pytest -q", "4 passed")]):
        found = judged("All tests pass.", own, CHANGED, verification=checked(verdict, other, check))
        assert of_tests(found) == (shown, why.format(verdict), None)
        silent = judged("Done.", own, CHANGED, verification=checked(verdict, other, check))
        assert bool(silent) is (shown == "proved")


@pytest.mark.parametrize("verdict", ["verified", "passed", "inconclusive", "refuted"])
def test_a_check_without_tests_proves_none(verdict: str) -> None:
    checks = checked(verdict, ran("evidence", "green", "exitCode"))
    red, green = bash("pytest -q", FAILING, ok=False), bash("pytest -q", "4 passed")
    for steps in ([edit()], [edit(), red], [edit(), green], [green, edit()]):
        assert judged("All tests pass.", steps, CHANGED, verification=checks) == judged(
            "All tests pass.", steps, CHANGED
        )


@pytest.mark.parametrize(
    "summary", ["`test_b` fails as before; the other tests pass.", "2 Tests sind noch rot.", "テスト test_a が失敗"]
)
def test_a_summary_that_reports_what_fails_in_the_checks_is_not_refuted(summary: str) -> None:
    red = ran("improved", "red", tests={"fixed": ["t.test_c"], "preexisting": ["t.test_a", "t.test_b"]})
    found = of_tests(judged(summary, [edit()], CHANGED, verification=checked("improved", red)))
    assert found == ("unproved", RED, None)
    found = of_tests(judged("The test test_c passes.", [edit()], CHANGED, verification=checked("improved", red)))
    assert found == ("refuted", RED, None)


@pytest.mark.parametrize("words", ["I fixed {}.", "{} ist repariert.", "修正了 {}。"])
@pytest.mark.parametrize(
    ("name", "steps", "expected"),
    [
        ("src/pricing.py", [edit()], ("proved", "edit")),
        ("pricing.py", [edit()], ("proved", "edit")),
        ("/workspace/src/pricing.py", [edit()], ("proved", "edit")),
        ("CHANGELOG.md", [edit("CHANGELOG.md", denied=True)], ("refuted", "edit")),
        ("CHANGELOG.md", [edit("CHANGELOG.md", ok=False)], ("refuted", "edit")),
        ("CHANGELOG.md", [edit("CHANGELOG.md", ok=False), edit("CHANGELOG.md")], ("unproved", None)),
        (
            "out.txt",
            [step("bash", "shell", denied=True, arguments={"command": "echo x > out.txt"})],
            ("refuted", "shell"),
        ),
        ("README.md", [step("read_file", arguments={"path": "README.md"})], ("unproved", None)),
    ],
)
def test_a_file_in_code_marks_is_compared_with_the_changes(
    words: str, name: str, steps: list[Step], expected: tuple[str, str | None]
) -> None:
    found = [each for each in judged(words.format(f"`{name}`"), steps, CHANGED) if each.claim != "tests pass"]
    assert [(each.verdict, each.evidence) for each in found] == [expected]


@pytest.mark.parametrize("text", ["`console.log`", "`response.data`", "`os.path`", "`v1.2`", "pricing.py", "`a b.py`"])
def test_what_is_no_file_in_code_marks_is_not_judged(text: str) -> None:
    assert judged(text, [edit()], CHANGED) == []


def test_a_list_of_changes_that_is_not_complete_refutes_nothing() -> None:
    steps = [edit("a.py", denied=True)]
    assert summary_claims("I wrote `a.py`.", Work(steps, None, Verification())) == []


def test_the_number_of_files_is_bounded() -> None:
    summary = " ".join(f"`f{number}.py`" for number in range(100))
    assert len(judged(summary, [])) == MAX_FILES
