"""What a statement states, compared with its file and with what checks find: repeated, different, or not tried."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from deputize.shared.checks import CommandCheck, FileCheck, OwnCheck, ReviewCheck, VerifyItem
from deputize.shared.delegation import Status, TerminationReason, ToolAgentResult
from deputize.shared.errors import Invalid
from deputize.shared.facts import Check, GitFacts, Verification
from deputize.shared.proof.comparison import Stated
from deputize.shared.proof.envelope import opened, signed
from deputize.shared.proof.file import Proof
from deputize.shared.proof.policy import Policy
from deputize.shared.proof.statement import shown_item, statement_of
from deputize.shared.request import DelegationRequest
from tests.shared.proof.signing import SIGNER, public

BASE, COMMIT = "1" * 40, "2" * 40
PATCH = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-a\n+b\n+c\n"
PLAIN = CommandCheck(kind="command", run="pytest")
HIDDEN = CommandCheck(kind="command", run="secret", files={"test_x.py": "assert 1"}, hidden=True)
REVIEW, OWN = ReviewCheck(kind="review"), OwnCheck(kind="own", name="size")
REQUEST = DelegationRequest(task="Mend it", verify=[PLAIN, HIDDEN, REVIEW, OWN], protect=["tests/"])
MOMENT = datetime(2026, 1, 2, tzinfo=UTC)


def check(item: VerifyItem, **fields: Any) -> Check:
    seen = {"base": "red", "candidate": "green", "canary": "red", "tests": {"fixed": ["t"]}, "strength": "tests"}
    return Check(**{"item": shown_item(item), "outcome": "evidence", **seen, **fields})


def verification(*checks: Check, **fields: Any) -> Verification:
    return Verification(**{"verdict": "verified", "checks": [*checks], "require": "passed", **fields})


ALL = verification(*map(check, REQUEST.verify), restored=["tests/a.py"])
RESULT = ToolAgentResult(
    delegation_id="dlg_1",
    status=Status.SUCCEEDED,
    termination_reason=TerminationReason.COMPLETED,
    verification=ALL,
    git=GitFacts(base=BASE, commit=COMMIT),
)
STATEMENT = statement_of(REQUEST, RESULT, PATCH, MOMENT, {"model": "claude"})
STATED = Stated.of(STATEMENT)
RULES = """\
keys = ["k"]
verdict = "verified"
canary = "red"
max_lines = 3
paths = ["x"]
"""
PROOF = Proof(envelope={}, patch=PATCH, task="Mend it", verify=[PLAIN, None, REVIEW, OWN])


def stated_of(*checks: Check, **fields: Any) -> Stated:
    result = RESULT.model_copy(update={"verification": verification(*checks, **fields)})
    return Stated.of(statement_of(REQUEST, result, PATCH, MOMENT, {"model": "claude"}))


def rows(items: list[VerifyItem | None], found: Verification | None) -> dict[str, str]:
    return {row.name: row.state for row in STATED.compared(items, found)}


def test_a_statement_is_read_as_it_was_made() -> None:
    assert (STATED.id, STATED.base, STATED.commit) == ("dlg_1", BASE, COMMIT)
    request = STATED.request(PROOF, [PLAIN, HIDDEN, REVIEW, OWN], "https://git.example/x")
    assert (request.verify, request.protect, request.task) == ([PLAIN, HIDDEN], ["tests/"], "Mend it")
    assert request.workspace.to_dict() == {"kind": "git", "url": "https://git.example/x", "ref": BASE, "depth": 1}


def test_checks_that_the_file_leaves_out_are_taken_from_the_request() -> None:
    assert STATED.items_of(PROOF, ()) == [PLAIN, None, REVIEW, OWN]
    other = HIDDEN.model_copy(update={"files": {"test_x.py": "assert 0"}})
    assert STATED.items_of(PROOF, [other, HIDDEN]) == [PLAIN, HIDDEN, REVIEW, OWN]
    assert STATED.items_of(PROOF, [other]) == [PLAIN, None, REVIEW, OWN]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"patch": PATCH + "+d\n"}, "another patch than"),
        ({"task": "Break it"}, "another task than"),
        ({"context": " "}, "another context than"),
        ({"expected_outcome": "x"}, "another expectedOutcome than"),
        ({"verify": [PLAIN.model_copy(update={"run": "true"}), None, REVIEW, OWN]}, "another check 1 than"),
        ({"verify": [PLAIN, HIDDEN.model_copy(update={"run": "true"}), REVIEW, OWN]}, "another check 2 than"),
        ({"verify": [None, PLAIN, REVIEW, OWN]}, "another check 2 than"),
        ({"verify": [PLAIN]}, "another number of checks than"),
        ({"verify": []}, "another number of checks than"),
    ],
)
def test_a_file_with_anything_else_than_what_is_stated_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        STATED.items_of(PROOF.model_copy(update=changed), ())


def _without(*path: str) -> dict[str, Any]:
    def copy(value: Any, names: tuple[str, ...]) -> Any:
        first, *rest = names
        if not rest:
            return {name: each for name, each in value.items() if name != first}
        return {**value, first: copy(value[first], tuple(rest))}

    return copy(STATEMENT, path)


@pytest.mark.parametrize(
    "statement",
    [
        _without("predicate"),
        _without("predicate", "buildDefinition", "externalParameters"),
        _without("predicate", "runDetails", "deputize_verification"),
        {**STATEMENT, "subject": []},
        {**STATEMENT, "subject": [{"name": "patch", "digest": "x"}]},
        {**STATEMENT, "predicate": []},
    ],
)
def test_a_statement_without_these_facts_is_refused(statement: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="lacks facts"):
        Stated.of(statement)


def test_a_statement_about_something_else_is_refused() -> None:
    built = STATEMENT["predicate"]["buildDefinition"]
    with pytest.raises(Invalid, match="is not about urn:deputize"):
        Stated.of({**STATEMENT, "predicate": {"buildDefinition": {**built, "buildType": "x"}, "runDetails": {}}})
    commit = {"name": "commit", "digest": {"gitCommit": "--upload-pack=x"}}
    with pytest.raises(Invalid, match="a commit that is none"):
        Stated.of({**STATEMENT, "subject": [STATEMENT["subject"][0], commit]})


def test_each_fact_is_repeated_differs_or_was_not_tried() -> None:
    items: list[VerifyItem | None] = [PLAIN, HIDDEN, REVIEW, OWN]
    tried = verification(check(PLAIN), check(HIDDEN), restored=["tests/a.py"])
    untried = {"check 3": "!", "check 4": "!", "verdict": "!", "restored": "✓", "released": "✓"}
    assert rows(items, tried) == {"check 1": "✓", "check 2": "✓", **untried}
    assert rows([PLAIN, None, REVIEW, OWN], verification(check(PLAIN), restored=["tests/a.py"])) == {
        "check 1": "✓",
        "check 2": "!",
        **untried,
    }
    assert set(rows([None] * 4, None).values()) == {"!"}
    unmade = verification(verdict="inconclusive", why="the files cannot be laid out")
    assert {row.detail for row in stated_of(check(PLAIN)).compared([PLAIN], unmade)} >= {f"not tried: {unmade.why}"}


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"base": "green"}, "✗"),
        ({"candidate": "red"}, "✗"),
        ({"canary": "green"}, "✗"),
        ({"canary": None}, "✗"),
        ({"as_left": "green"}, "✗"),
        ({"outcome": "no_regression"}, "✗"),
        ({"strength": "exitCode"}, "✗"),
        ({"tests": {"fixed": ["other"]}}, "✗"),
        ({"tests": {}}, "✗"),
        ({"tests": {"fixed": ["t"], "flickering": ["by chance"]}}, "✓"),
        ({"tests": {"fixed": ["t"], "unsteady": ["u"]}}, "✗"),
        ({"candidate": "unknown", "outcome": "inconclusive"}, "!"),
        ({"own_tests": True, "exit_code": 7, "duration_ms": 9, "output_tail": "x", "why": "y"}, "✓"),
    ],
)
def test_what_a_check_finds_is_compared_ground_by_ground(fields: dict[str, Any], state: str) -> None:
    found = verification(check(PLAIN, **fields), check(HIDDEN), check(REVIEW), check(OWN), restored=["tests/a.py"])
    plain = stated_of(check(PLAIN))
    assert next(plain.compared([PLAIN], found)).state == state


@pytest.mark.parametrize("fields", [{"verdict": "passed"}, {"restored": ["b"]}, {"released": ["b"]}])
def test_another_verdict_and_other_restored_files_differ(fields: dict[str, Any]) -> None:
    found = verification(check(PLAIN))
    stated = stated_of(check(PLAIN))
    assert {row.state for row in stated.compared([PLAIN], found)} == {"✓"}
    other = found.model_copy(update=fields)
    assert [row.name for row in stated.compared([PLAIN], other) if row.state != "✓"] == [*fields]


@pytest.mark.parametrize(
    ("rules", "states"),
    [
        ("", {}),
        (
            'keys = ["k"]\nverdict = "verified"\ncanary = "red"\nmax_lines = 3\npaths = ["x"]',
            dict.fromkeys(["keys", "verdict", "canary", "max_lines", "paths"], "✓"),
        ),
        ('keys = ["other"]', {"keys": "✗"}),
        ("max_lines = 2", {"max_lines": "✗"}),
    ],
)
def test_every_rule_that_is_set_is_a_row(rules: str, states: dict[str, str]) -> None:
    found = Policy.read(rules.encode()).rows("k", STATED, PATCH, [])
    assert {row.name.removeprefix("policy "): row.state for row in found} == states


def test_rules_hold_for_binary_files_paths_and_canaries_too() -> None:
    rules = Policy.read(b'paths = ["src"]\nmax_lines = 9\ncanary = "red"')
    binary = "diff --git a/x b/x\nindex 1111111..2222222\nGIT binary patch\nliteral 0\nHcmV?d00001\n\n"
    blind = stated_of(check(PLAIN, canary=None))
    assert [row.state for row in rules.rows("k", blind, binary, ["x"])] == ["✗", "✗", "✗"]
    assert [row.state for row in rules.rows("k", STATED, PATCH, None)] == ["!", "✓", "✓"]
    other = stated_of(check(FileCheck(kind="file", path="x")))
    assert [row.state for row in Policy.read(b'canary = "red"').rows("k", other, PATCH, [])] == ["✗"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("keyz = 1", "keyz"), ("max_lines = 'x'", "max_lines"), ("canary = 'green'", "canary"), ("=", "Invalid")],
)
def test_a_rule_that_is_none_is_refused_by_its_name(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Policy.read(text.encode())


def test_a_changed_byte_of_any_of_200_statements_is_found() -> None:
    """Each statement is changed at other places, so that together they cover all."""
    keys, accepted = [public(SIGNER)], list[tuple[int, int]]()
    for number in range(200):
        request = REQUEST.model_copy(update={"task": f"task {number}", "context": "x" * number})
        data = signed(statement_of(request, RESULT, PATCH, MOMENT, {"model": f"model-{number}"}), SIGNER)
        for at in range(number, len(data), 200):
            changed = bytes((*data[:at], data[at] ^ (1 << number % 8), *data[at + 1 :]))
            try:
                opened(changed, keys)
            except Invalid:
                continue
            accepted.append((number, at))
    assert accepted == []
