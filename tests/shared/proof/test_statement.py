"""Statements: which facts of a result they have, and for which results there is none."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest

from deputize.shared.delegation import Status, TerminationReason, ToolAgentResult
from deputize.shared.facts import Check, GitFacts, Verification
from deputize.shared.proof.statement import statement_of, why_none
from deputize.shared.request import DelegationRequest

PATCH = "diff --git a/x b/x\n+\u00e4\udc80\n"
REQUEST = DelegationRequest(task="Mend it", context="the secret plan", expected_outcome="It works")
CHECK = Check(
    item={"kind": "command", "run": "pytest", "hidden": False, "files": {"test_x.py": "ab" * 32}},
    outcome="evidence",
    base="red",
    candidate="green",
    canary="red",
    strength="tests",
    output_tail="words of the code under test",
    tests={"fixed": ["test_x"]},
)
STARTED, INTERNAL = datetime(2026, 1, 2, tzinfo=UTC), {"model": "claude", "tools": ["bash"]}


def result(**fields: Any) -> ToolAgentResult:
    verdict = Verification(verdict="verified", require="verified", checks=[CHECK], restored=["tests/conftest.py"])
    given = {
        "delegation_id": "dlg_1",
        "status": Status.SUCCEEDED,
        "termination_reason": TerminationReason.COMPLETED,
        "summary": "I did it",
        "verification": verdict,
        "git": GitFacts(base="1" * 40, commit="2" * 40, left_out=["tests/conftest.py"]),
    }
    return ToolAgentResult(**{**given, **fields})


def digest(text: str) -> dict[str, str]:
    return {"sha256": sha256(text.encode("utf-8", "surrogatepass")).hexdigest()}


def test_a_statement_has_the_facts_and_of_long_texts_the_digests() -> None:
    stated = statement_of(REQUEST, result(), PATCH, STARTED, INTERNAL)
    assert stated["subject"] == [
        {"name": "patch", "digest": digest(PATCH)},
        {"name": "commit", "digest": {"gitCommit": "2" * 40}},
    ]
    built = stated["predicate"]["buildDefinition"]
    assert built["externalParameters"] == {
        "task": digest("Mend it"),
        "context": digest("the secret plan"),
        "expectedOutcome": digest("It works"),
        "protect": None,
        "accept": [],
        "verifyTimeoutSeconds": 300.0,
    }
    assert built["internalParameters"] == INTERNAL
    assert built["resolvedDependencies"] == [{"name": "base", "digest": {"gitCommit": "1" * 40}}]
    assert stated["predicate"]["runDetails"]["deputize_verification"] == {
        "verdict": "verified",
        "checks": [
            {
                "item": CHECK.item,
                "outcome": "evidence",
                "base": "red",
                "candidate": "green",
                "canary": "red",
                "asLeft": None,
                "strength": "tests",
                "tests": {"fixed": ["test_x"]},
            }
        ],
        "restored": ["tests/conftest.py"],
        "released": [],
        "undelivered": ["tests/conftest.py"],
    }


@pytest.mark.parametrize("hidden", [{"hidden": True}, {"files": {"test_x.py": "ab" * 32}}], ids=["asked", "by files"])
def test_of_a_hidden_check_neither_command_nor_paths_nor_tests_are_stated(hidden: dict[str, Any]) -> None:
    check = CHECK.model_copy(update={"item": {"kind": "command", "run": "secret command", **hidden}})
    stated = statement_of(
        REQUEST, result(verification=Verification(verdict="verified", checks=[check])), PATCH, STARTED, INTERNAL
    )
    (found,) = stated["predicate"]["runDetails"]["deputize_verification"]["checks"]
    assert found["item"].keys() == {"kind", "hidden", "sha256"}
    assert found["tests"] == {"fixed": 1}
    assert [word for word in ("secret", "test_x") if word in json.dumps(stated)] == []


def test_a_statement_has_no_words_of_the_caller_the_model_or_the_code() -> None:
    text = json.dumps(statement_of(REQUEST, result(), PATCH, STARTED, INTERNAL))
    words = ("Mend it", "secret plan", "It works", "I did it", "words of the code")
    assert [each for each in words if each in text] == []


def test_a_result_without_a_repository_has_neither_base_nor_commit() -> None:
    stated = statement_of(REQUEST, result(git=None), PATCH, STARTED, INTERNAL)
    assert [each["name"] for each in stated["subject"]] == ["patch"]
    assert stated["predicate"]["buildDefinition"]["resolvedDependencies"] == []


FAILED = {"status": Status.FAILED}


@pytest.mark.parametrize(
    ("fields", "patch", "reason"),
    [
        ({"verification": Verification()}, PATCH, "only verified ones"),
        ({"verification": Verification(verdict="passed", require="passed")}, PATCH, "is passed"),
        ({**FAILED, "verification": Verification(verdict="refuted", require="passed")}, PATCH, "is refuted"),
        ({**FAILED, "termination_reason": TerminationReason.TIMEOUT}, PATCH, "is failed"),
        ({"truncated": True}, PATCH, "patch is incomplete"),
        ({}, "", "changed no file"),
    ],
)
def test_of_other_results_there_is_no_statement(fields: dict[str, Any], patch: str, reason: str) -> None:
    assert reason in why_none(result(**fields), patch)
