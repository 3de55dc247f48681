"""What follows from the facts of a verification."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deputize.shared.delegation import ToolAgentResult, shortfall_of
from deputize.shared.facts import Verification
from deputize.shared.request import DelegationRequest


@pytest.mark.parametrize(
    ("require", "verdict", "is_met"),
    [
        (None, "inconclusive", True),
        (None, "refuted", False),
        ("passed", "verified", True),
        ("passed", "improved", False),
        ("verified", "passed", False),
        ("improved", "improved", True),
    ],
)
def test_a_requirement_accepts_what_is_better(require: str | None, verdict: str, is_met: bool) -> None:
    found = Verification.model_validate({"verdict": verdict, "require": require})
    assert found.is_met is is_met
    if require is not None:
        assert (found.shortfall() == "") is is_met


@pytest.mark.parametrize(
    ("fields", "require", "shortfall"),
    [
        ({"verdict": "unverified"}, None, ""),
        ({"verdict": "unverified"}, "passed", "the verdict is unverified, and passed is required"),
        (
            {"verdict": "inconclusive", "why": "no network"},
            None,
            "the verdict is inconclusive, and passed is required: ",
        ),
        ({"verdict": "verified"}, "verified", ""),
        ({"verdict": "passed"}, "verified", "the verdict is passed, and verified is required"),
        ({"verdict": "improved", "require": "improved"}, "passed", ""),
        ({"verdict": "refuted", "why": "x fails"}, "improved", "the checks refute the result: x fails"),
    ],
)
def test_a_result_without_a_requirement_needs_that_of_its_request(
    fields: dict[str, Any], require: Any, shortfall: str
) -> None:
    """As results of earlier versions, whose `success` did not depend on it."""
    found = Verification.model_validate(fields).shortfall(require)
    assert found.startswith(shortfall)
    assert bool(found) is bool(shortfall)


def test_a_request_without_checks_has_no_shortfall() -> None:
    result = ToolAgentResult.model_validate(
        {"delegationId": "dlg_1", "status": "succeeded", "terminationReason": "completed"}
    )
    asked = DelegationRequest.model_validate({"task": "x"})
    checked = DelegationRequest.model_validate({"task": "x", "verify": "true", "require": "verified"})
    assert shortfall_of(asked, result) == ""
    assert shortfall_of(checked, result) == "the verdict is unverified, and verified is required"


@pytest.mark.parametrize(
    ("deliver", "require"),
    [
        (None, "passed"),
        ({"branch": "fix"}, "passed"),
        ({"branch": "fix", "require": None}, "verified"),
        ({"branch": "fix", "require": "finished"}, "passed"),
        ({"branch": "fix", "require": "verified"}, "verified"),
    ],
)
def test_stored_requests_of_earlier_versions_keep_what_their_delivery_required(deliver: Any, require: str) -> None:
    stored = DelegationRequest.model_validate({"task": "x", "verify": "true"}).to_dict() | {"deliver": deliver}
    request = DelegationRequest.of_record(json.dumps(stored))
    assert request.require == require
    assert (request.deliver and request.deliver.branch) == (deliver and "fix")
