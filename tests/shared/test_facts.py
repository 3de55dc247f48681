"""What follows from the facts of a verification."""

from __future__ import annotations

import pytest

from deputize.shared.facts import Verification


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
