"""Statements: which facts of a result they have, and for which results there is none."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest

from deputize.shared.delegation import Status, TerminationReason, ToolAgentResult
from deputize.shared.facts import Check, GitFacts, Verification
from deputize.shared.proof.statement import Execution, statement_of, why_none
from deputize.shared.request import DelegationRequest

PATCH = "diff --git a/x b/x\n+\u00e4\udc80\n"
REQUEST = DelegationRequest(task="Mend it", context="the secret plan", expected_outcome="It works")
CHECK = Check(
    item={"kind": "command", "run": "pytest", "files": {"test_x.py": "ab" * 32}},
    outcome="evidence",
    base="red",
    candidate="green",
    canary="red",
    strength="tests",
    output_tail="words of the code under test",
    tests={"fixed": ["test_x"]},
)
EXECUTION = Execution(
    started=datetime(2026, 1, 2, tzinfo=UTC),
    finished=datetime(2026, 1, 3, tzinfo=UTC),
    model="claude",
    policy="deny all",
    sandbox="strict",
    tools=("write_file", "bash"),
    hosts=("packages.example",),
    subagents=("dlg_2",),
    version="0.1.0",
)


def result(**fields: Any) -> ToolAgentResult:
    verdict = Verification(verdict="verified", require="verified", checks=[CHECK], restored=["tests/conftest.py"])
    given = {
        "delegation_id": "dlg_1",
        "status": Status.SUCCEEDED,
        "termination_reason": TerminationReason.COMPLETED,
        "summary": "I did it",
        "verification": verdict,
        "git": GitFacts(base="1" * 40, commit="2" * 40),
    }
    return ToolAgentResult(**{**given, **fields})


def digest(text: str) -> dict[str, str]:
    return {"sha256": sha256(text.encode("utf-8", "surrogatepass")).hexdigest()}


def test_a_statement_has_the_facts_and_of_long_texts_the_digests() -> None:
    stated = statement_of(REQUEST, result(), PATCH, EXECUTION)
    assert stated["subject"] == [
        {"name": "patch", "digest": digest(PATCH)},
        {"name": "commit", "digest": {"gitCommit": "2" * 40}},
    ]
    built = stated["predicate"]["buildDefinition"]
    assert built["externalParameters"] == {
        "task": digest("Mend it"),
        "context": digest("the secret plan"),
        "expectedOutcome": digest("It works"),
    }
    assert built["internalParameters"] == {
        "model": "claude",
        "parameters": {},
        "policy": digest("deny all"),
        "sandbox": digest("strict"),
        "tools": ["bash", "write_file"],
        "hosts": ["packages.example"],
        "subagents": ["dlg_2"],
    }
    assert built["resolvedDependencies"] == [{"name": "base", "digest": {"gitCommit": "1" * 40}}]
    found = stated["predicate"]["runDetails"]["deputize_verification"]
    assert found["restored"] == ["tests/conftest.py"]
    assert [found["checks"][0][ground] for ground in ("base", "candidate", "canary")] == ["red", "green", "red"]
    assert found["checks"][0]["item"] == CHECK.item


def test_a_statement_has_no_words_of_the_caller_the_model_or_the_code() -> None:
    text = json.dumps(statement_of(REQUEST, result(), PATCH, EXECUTION))
    words = ("Mend it", "secret plan", "It works", "I did it", "words of the code", "deny all", "strict")
    assert [each for each in words if each in text] == []


def test_a_result_without_a_repository_has_neither_base_nor_commit() -> None:
    stated = statement_of(REQUEST, result(git=None), PATCH, EXECUTION)
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
    with pytest.raises(ValueError, match=reason):
        statement_of(REQUEST, result(**fields), patch, EXECUTION)
