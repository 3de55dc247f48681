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


def judged(summary: str, steps: Sequence[Step], *changes: FileChange, checks: str = "") -> list[SummaryClaim]:
    check = Check(item={"kind": "command", "run": "true"}, outcome="evidence")
    verification = Verification.model_validate({"verdict": checks, "checks": [check]}) if checks else Verification()
    return summary_claims(summary, Work(steps, changes, verification))


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


def test_a_report_on_failing_tests_without_a_change_is_not_refuted() -> None:
    found = of_tests(judged("The suite is red.", [bash("pytest -q", "FAILED a", ok=False)]))
    assert found == ("unproved", "the last run of tests failed", "tests")


def test_a_run_without_tests_and_without_changes_has_no_claim_about_tests() -> None:
    assert judged("The bug is in line 12.", [step("read_file", arguments={"path": "a.py"})]) == []


@pytest.mark.parametrize(
    ("verdict", "shown"),
    [("verified", "proved"), ("passed", "proved"), ("refuted", "refuted"), ("inconclusive", "unproved")],
)
def test_the_requested_checks_count_before_what_the_run_tested_itself(verdict: str, shown: str) -> None:
    steps = [edit(), bash("pytest -q", FAILING, ok=False)]
    found = of_tests(judged("All tests pass.", steps, CHANGED, checks=verdict))
    assert found == (shown, f"the requested checks are {verdict}", None)
    is_proved = shown == "proved"
    assert bool(judged("Done.", steps, CHANGED, checks=verdict)) is is_proved


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
