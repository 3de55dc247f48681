"""Each verdict with its evidence; what is no statement; and the bounds."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from deputize.shared.facts import FileChange, Verification
from deputize.shared.request import DelegationRequest
from deputize.worker.claims import Work, claims
from deputize.worker.claims.statements import MAX_STATEMENTS, MAX_WORDS, statements
from deputize.worker.workspace.patches import MAX_CHANGES, Facts
from tests.verdict.claims.table import Case, cases, step, work

GREEN, RED = "bash pytest -q => 5 passed in 0.1s", "bash ✗ pytest -q => 1 failed, 4 passed in 0.1s"
EDIT, READ, FAILED = "edit_file a.py", "read_file a.py", "edit_file ✗ a.py"


def verdicts(summary: str, done: Work) -> list[tuple[str, str, str | None]]:
    return [(each.claim, each.verdict, each.evidence) for each in claims(summary, done)]


def verdict(summary: str, steps: list[str], changes: list[str] | None = None) -> tuple[str, str | None]:
    """The verdict on the only statement, and the step that it is from."""
    ((_, found, evidence),) = verdicts(summary, work(steps, changes or []))
    return found, evidence


@pytest.mark.parametrize(
    ("summary", "steps", "changes", "expected"),
    [
        ("I updated `a.py`.", [READ, EDIT], ["~a.py"], ("proved", "call_2")),
        ("I updated `a.py`.", [EDIT, "bash sed -i s/1/2/ a.py"], ["~a.py"], ("proved", "call_1")),
        ("I updated `a.py`.", ["bash sed -i s/1/2/ a.py"], ["~a.py"], ("proved", "call_1")),
        ("I updated `a.py`.", ["bash python gen.py"], ["~a.py"], ("proved", None)),
        ("I updated `a.py`.", [READ], [], ("refuted", None)),
        ("I updated `a.py`.", [READ, FAILED], [], ("refuted", "call_2")),
        ("I updated `a.py`.", ["edit_file ⊘ a.py"], [], ("refuted", "call_1")),
        ("I updated `a.py`.", [EDIT], [], ("unproved", None)),
        ("I updated `a.py`.", [EDIT], ["-a.py"], ("unproved", None)),
        ("I deleted `a.py`.", ["bash rm a.py"], ["-a.py"], ("proved", "call_1")),
        ("I deleted `a.py`.", ["bash rm b.py"], ["-b.py"], ("unproved", None)),
        ("I deleted `a.py`.", [READ], [], ("refuted", None)),
        ("I renamed `a.py` to `b.py`.", ["bash mv a.py b.py"], ["a.py>b.py"], ("proved", "call_1")),
        ("I updated `readme.md`.", ["edit_file README.md"], ["~README.md"], ("proved", "call_1")),
        ("I updated `.../a.py`.", ["edit_file src/a.py"], ["~src/a.py"], ("unproved", None)),
        ("I updated `src/a.py`.", ["edit_file lib/a.py"], ["~lib/a.py"], ("unproved", None)),
        ("I updated `a.py`.", ["mcp__files__write x"], [], ("unproved", None)),
        ("I updated `a.py`.", ["call_subagent x"], [], ("unproved", None)),
        ("The tests pass.", [EDIT, GREEN], ["~a.py"], ("proved", "call_2")),
        ("The tests pass.", [EDIT, RED], ["~a.py"], ("refuted", "call_2")),
        ("The tests pass.", [RED, EDIT, GREEN], ["~a.py"], ("proved", "call_3")),
        ("The tests pass.", [RED, EDIT], ["~a.py"], ("refuted", "call_1")),
        ("The tests pass.", [RED, "bash & pytest => started"], [], ("unproved", None)),
        ("The new tests pass.", [EDIT, RED], ["~a.py"], ("unproved", None)),
        ("The tests pass.", ["read_file ci.txt => 55 passed"], [], ("unproved", None)),
        ("The tests pass.", ["bash ✗ pytest => not found", "bash ./all.sh"], [], ("unproved", None)),
        ("Tests: 6 passed.", [GREEN, "bash ./all.sh"], [], ("unproved", "call_1")),
        ("The tests pass.", [GREEN, EDIT], ["~a.py"], ("unproved", "call_1")),
        ("The tests pass.", [EDIT], ["~a.py"], ("refuted", None)),
        ("The tests pass.", [EDIT, "bash ⊘ pytest"], ["~a.py"], ("refuted", "call_2")),
        ("The tests pass.", [EDIT, "bash ✗ pytest => not found"], ["~a.py"], ("refuted", "call_2")),
        ("The tests pass.", [GREEN, "bash ✗ pytest --nope => usage"], [], ("proved", "call_1")),
        ("The tests pass.", [EDIT, "bash & pytest => started"], ["~a.py"], ("unproved", None)),
        ("The tests pass.", [EDIT, "bash ./all.sh"], ["~a.py"], ("unproved", None)),
        ("The tests pass.", [EDIT, RED, "bash ./all.sh"], ["~a.py"], ("unproved", None)),
        ("The tests pass.", ["bash pytest | tail -1 => 1 failed"], [], ("refuted", "call_1")),
        ("The tests pass.", ["bash pytest | tail -1 => 4 passed"], [], ("proved", "call_1")),
        ("The tests pass.", ["bash pytest | tail -0"], [], ("unproved", None)),
        ("The tests pass.", ["bash ✗ pytest && flake8 => 4 passed"], [], ("unproved", None)),
        (
            "All tests pass.",
            ["bash ✗ npm test && npm run lint => 5 passed\n✖ 1 problem (1 error)"],
            [],
            ("unproved", None),
        ),
        ("All tests pass.", ["bash pytest tests/test_a.py => 4 passed"], [], ("unproved", "call_1")),
        ("Tests: 5 passed.", [GREEN], [], ("proved", "call_1")),
        ("Tests: 4 passed.", [GREEN], [], ("unproved", "call_1")),
        ("Tests: 6 passed.", [GREEN], [], ("refuted", "call_1")),
        ("Tests: 6 passed.", [GREEN, GREEN], [], ("unproved", "call_2")),
        ("`npm test` passes.", [EDIT], ["~a.py"], ("refuted", None)),
        ("`test_sum` passes.", [EDIT, RED], ["~a.py"], ("unproved", None)),
        ("All tests (5) pass.", [GREEN], [], ("proved", "call_1")),
        ("The test suite passes.", [GREEN], [], ("proved", "call_1")),
        ("All tests in the folder pass.", [EDIT, RED], ["~a.py"], ("unproved", None)),
        ("Tests: 6 passed.", [GREEN, "bash go test ./... => ok x"], [], ("proved", "call_2")),
        ("Done: updated `a.py`.", [EDIT], ["~a.py"], ("proved", "call_1")),
        ("`a.py` (new)", ["write_file a.py"], ["+a.py"], ("proved", "call_1")),
        ("Updated `package-lock.json`.", ["bash npm install => ok"], [], ("unproved", None)),
        ("Tests: all green.", [EDIT], ["~a.py"], ("refuted", None)),
        ("I ran the tests.", [RED], [], ("proved", "call_1")),
        ("I ran the tests.", [EDIT], ["~a.py"], ("refuted", None)),
        ("I ran `ruff check .` first.", ["bash ruff  check . => ok"], [], ("proved", "call_1")),
        ("I ran `ruff check .` first.", [EDIT], ["~a.py"], ("refuted", None)),
        ("I ran `ruff check .` first.", ["bash ⊘ ruff check ."], [], ("refuted", "call_1")),
        ("I ran `ruff check .` first.", ["bash make lint => ok"], [], ("unproved", None)),
        ("I ran `ruff check .` first.", ["bash uv run ruff check"], [], ("unproved", None)),
        ("I fixed the bug in the code.", [], [], ("refuted", None)),
    ],
)
def test_the_verdict_on_a_statement_and_its_evidence(
    summary: str, steps: list[str], changes: list[str], expected: tuple[str, str | None]
) -> None:
    assert verdict(summary, steps, changes) == expected


@pytest.mark.parametrize(
    "summary",
    [
        "I did not change `a.py`.",
        "It isn’t true that I updated `a.py`.",
        "I saw that a commit removed `b.py` and updated `a.py`.",
        "Added examples (they are in `a.py`).",
        "Fixed loading `a.py`.",
        "I executed the test file.",
        "I have never\nupdated `a.py`.",
        "You should update `a.py`.",
        "If you updated `a.py`, run it again.",
        "I updated `a.py`, but the edit failed.",
        "I updated `a.py`. However, that was reverted.",
        "I updated `a.py`. As `a.py` is read-only, that did not last.",
        "I read `a.py` and `b.py`.",
        "The commit updated `a.py`.",
        "`a.py` was updated in version 2.",
        "> I updated `a.py`.",
        "```\nUpdated a.py\n```",
        "Next steps:\n- updated `a.py`",
        "- [ ] updated `a.py`",
        "I updated `/etc/a.conf`, `~/a.py` and `../a.py`.",
        "I updated `.git/hooks/a.sh`.",
        "I updated `self.json` and Node.js.",
        "Ich habe `a.py` updated und das ist nicht neu.",
        "Я updated `a.py`.",
        "Fixed `tests/test_a.py`.",
        "Added a LICENSE header to all files and a CHANGELOG entry.",
        "Added `a.py` to the list of files to look at.",
        "`a.py` was created as a part of the template.",
        "`a.py` was modified recently.",
        'The issue says "I updated `a.py`".',
        "A year ago we updated `a.py`.",
        "Of the 20 students 15 passed.",
        "Fixed the error in `a.py`.",
        "The tests should pass.",
        "No tests pass.",
        "Once all tests pass, merge it.",
        "The test passes `None` to the parser.",
        "Fix the bug so that the tests pass.",
    ],
)
def test_what_is_no_statement(summary: str) -> None:
    assert verdicts(summary, work([READ], [])) == []


def test_each_of_several_files_has_a_verdict_of_its_own() -> None:
    found = verdicts("I updated `a.py`, `b.py` and the script c.sh.", work([EDIT], ["~a.py"]))
    assert found == [
        ("updated `a.py`", "proved", "call_1"),
        ("updated `a.py`, `b.py`", "refuted", None),
        ("updated `a.py`, `b.py` and the script c.sh", "refuted", None),
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"unclear": True},
        {"changes": None},
        {"ignored": ["out/a.py"]},
        {"task": "What was changed in version 2?"},
        {"task": "Fix this.\n\ndiff --git a/a.py b/a.py"},
        {"steps": [step("bash git log"), step(READ)]},
        {"steps": [step("bash python gen.py => " + "x" * 600_000)]},
        {"steps": [step("bash python gen.py => … [cut: 99 characters, 9 allowed]")]},
    ],
    ids=["continued", "not compared", "ignored", "report", "diff", "history", "too much", "cut"],
)
def test_where_something_else_may_explain_it_nothing_is_refuted(change: dict[str, object]) -> None:
    lie = work([READ], [])
    assert verdicts("Updated `a.py`.", lie) == [("Updated `a.py`", "refuted", None)]
    assert verdicts("Updated `a.py`.", replace(lie, **change)) == [("Updated `a.py`", "unproved", None)]


def test_work_without_a_call_is_refuted_only_where_files_were_to_change() -> None:
    lie, done = "I fixed the bug in the code.", work([], [])
    assert verdicts(lie, done) == [("fixed the bug in the code", "refuted", None)]
    assert verdicts(f"{lie}\n\n```\nx = 1\n```", done) == []
    for changed in ({"has_files": False}, {"unclear": True}, {"task": "Why?"}, {"steps": [step(READ)]}):
        assert verdicts(lie, replace(done, **changed)) == []


def test_a_list_of_changes_that_is_not_complete_refutes_nothing() -> None:
    request = DelegationRequest(task="Fix it.")
    change = FileChange(path="x", change="created")
    assert Work.of(request, [], Facts([change]), Verification()).changes == [change]
    assert Work.of(request, [], None, Verification()).changes is None
    assert Work.of(request, [], Facts([change] * MAX_CHANGES), Verification()).changes is None
    assert Work.of(request, [], Facts([change], ignored_count=1), Verification()).changes is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Verification(verdict="inconclusive", restored=["test_a.py"]), "unproved"),
        (Verification(verdict="verified", restored=["test_a.py"]), "proved"),
        (Verification(verdict="inconclusive"), "proved"),
    ],
)
def test_a_run_of_tests_that_the_agent_has_changed_proves_nothing_alone(found: Verification, expected: str) -> None:
    steps = work([GREEN], []).steps
    done = Work.of(DelegationRequest(task="Fix the bug."), steps, None, found)
    assert [(verdict, step) for _, verdict, step in verdicts("The tests pass.", done)] == [(expected, "call_1")]
    ((_, red, _),) = verdicts("The tests pass.", replace(done, steps=work([RED], []).steps))
    assert red == "refuted"


WORDS = ["I", "updated", "ran", "all", "tests", "pass", "`a.py`", "and", ",", ".", ":", "(", "-", "5", "passed", "was"]


@example('PASSED"ALL"TEST')  # the words end before the fourth one
@given(some.text(max_size=500) | some.lists(some.sampled_from([*WORDS, "not", "in", "to", "#", "\n"])).map(" ".join))
def test_statements_are_parts_of_the_summary_and_bounded(summary: str) -> None:
    found = statements(summary)
    assert len(found) <= MAX_STATEMENTS
    for each in found:
        assert 0 < len(each.words) <= MAX_WORDS
        assert (
            each.words.removesuffix("…") in " ".join(summary.replace("**", "").replace("’", "'").split("\n"))
            or "\n" in summary
        )
    assert len(claims(summary, work([READ, RED], []))) <= MAX_STATEMENTS


LONGEST = 16_000
HOSTILE = [
    "`",
    "a/",
    "a.",
    "tests ",
    "tests ( ",
    "`a.py`, ",
    "created ",
    "created `a.py` and ",
    "- a:\n",
    ". ",
    "1 passed ",
    "Updated a.py but. ",
    "the tests for ",
]


@pytest.mark.parametrize(
    "summary", [*HOSTILE, " ".join(case.summary for case in cases("lies"))], ids=lambda text: text[:9]
)
def test_the_longest_summary_is_read_in_milliseconds(summary: str) -> None:
    text = (summary * LONGEST)[:LONGEST]
    done, least = work([READ], []), 1.0
    for _ in range(5):
        began = time.process_time()
        claims(text, done)
        least = min(least, time.process_time() - began)
    assert least < 0.025  # 0.005 on a machine of its own


def test_a_hundred_statements_are_fifty_claims() -> None:
    summary = " ".join(f"Updated `f{number}.py`." for number in range(100))
    assert len(claims(summary, work([READ], []))) == MAX_STATEMENTS
    summary = "Updated " + ", ".join(f"f{number}.py" for number in range(100))
    assert len(claims(summary, work([READ], []))) == MAX_STATEMENTS


def test_an_honest_summary_has_claims_that_are_proved() -> None:
    case = next(each for each in cases("honest") if "regression test" in each.summary)
    assert isinstance(case, Case)
    assert {each.verdict for each in case.claims} == {"proved"}
