"""What follows from the facts of a verification."""

from __future__ import annotations

import pytest

from deputize.shared.facts import Check, Verification


@pytest.mark.parametrize(
    ("verdict", "candidate", "is_red"),
    [("refuted", "green", True), ("improved", "red", True), ("passed", "green", False), ("unverified", None, False)],
)
def test_a_result_is_red_where_it_is_refuted_or_a_check_fails(
    verdict: str, candidate: str | None, is_red: bool
) -> None:
    check = Check.model_validate({"item": {}, "outcome": "improved", "candidate": candidate})
    found = Verification.model_validate({"verdict": verdict, "checks": [check]})
    assert found.is_red is is_red


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
    assert Verification.model_validate({"verdict": verdict, "require": require}).is_met is is_met
