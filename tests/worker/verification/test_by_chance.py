"""Tests that newly fail by chance, and what a third execution on base and candidate shows of them."""

from __future__ import annotations

import pytest

from deputize.worker.verification.reports.states import Report, TestState
from deputize.worker.verification.runners.execution import Observed
from deputize.worker.verification.verdict import Observations


def seen(**tests: TestState) -> Observed:
    is_red = "failed" in tests.values()
    return Observed("red" if is_red else "green", int(is_red), report=Report(tests={**tests}))


@pytest.mark.parametrize(
    ("base", "candidate", "expected"),
    [
        ("passed", "failed", "refuted"),
        ("passed", "passed", "inconclusive"),
        ("failed", "failed", "improved"),
    ],
)
def test_a_third_execution_shows_that_a_failure_was_by_chance(
    base: TestState, candidate: TestState, expected: str
) -> None:
    before, now = seen(a="passed", b="failed"), seen(a="failed", b="passed")
    observed = Observations(before, now, base_again=before, candidate_again=now)
    assert observed.judge().outcome == "refuted"
    more = observed.with_more(seen(a=base, b="failed"), seen(a=candidate, b="passed"))
    assert more.judge().outcome == expected


CUT_OFF = Observed("trouble")


@pytest.mark.parametrize(
    ("base", "candidate", "expected"),
    [
        (CUT_OFF, seen(a="failed"), "refuted"),
        (seen(a="passed"), Observed("red", 1), "refuted"),
        (seen(a="passed"), CUT_OFF, "inconclusive"),
        (CUT_OFF, CUT_OFF, "inconclusive"),
        (seen(a="passed"), Observed("trouble", report=Report(tests={"b": "passed"})), "inconclusive"),
        (seen(a="passed"), Observed("trouble", report=Report(tests={"a": "failed"})), "refuted"),
    ],
)
def test_a_third_execution_that_is_cut_off_differs_only_on_the_candidate(
    base: Observed, candidate: Observed, expected: str
) -> None:
    before, now = seen(a="passed", b="passed"), seen(a="failed", b="passed")
    observed = Observations(before, now, base_again=before, candidate_again=now)
    assert observed.with_more(base, candidate).judge().outcome == expected
