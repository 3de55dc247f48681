"""Reports that have no tests, but what was replaced in the libraries that assert."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.shared.facts import GroundState
from deputize.worker.contracts import Completed
from deputize.worker.verification.confirmation import _passes
from deputize.worker.verification.reports.states import Report
from deputize.worker.verification.runners.execution import NO_TESTS, NO_TESTS_RAN, Observed, _observed
from deputize.worker.verification.runners.known import Instrumented

BENT = frozenset({"assert.ok"})
PASSED = Report({"a": "passed"})


@pytest.mark.parametrize(
    ("sent", "exit_code", "state"),
    [
        (Report(bent=BENT), 0, "trouble"),
        (Report(bent=BENT), NO_TESTS, "trouble"),
        (Report(), 0, "trouble"),
        (Report({"a": "passed"}, bent=BENT), 0, "green"),
        (Report(bent=BENT, of_runner=False), 0, "green"),
        (Report(bent=BENT, of_runner=False), 1, "red"),
        (None, 0, "green"),
    ],
)
def test_a_runner_without_tests_is_no_success_whatever_was_replaced(
    sent: Report | None, exit_code: int, state: GroundState, tmp_path: Path
) -> None:
    done = Completed(exit_code, b"", b"")
    seen = _observed(done, Instrumented("npm test"), (tmp_path, tmp_path, sent), 10)
    assert (seen.state, seen.why) == (state, NO_TESTS_RAN if state == "trouble" else "")


@pytest.mark.parametrize(
    ("control", "candidate", "passes"),
    [
        (Observed("red", 1, report=Report(bent=BENT)), Observed("green", 0, report=Report(bent=BENT)), False),
        (Observed("green", 0, report=Report(bent=BENT)), Observed("green", 0, report=Report(bent=BENT)), True),
        (Observed("red", 1), Observed("green", 0, report=Report(bent=BENT)), False),
        (
            Observed("red", 1, report=Report({"a": "passed"})),
            Observed("green", 0, report=Report({"a": "passed"})),
            True,
        ),
        (Observed("green", 0, report=Report()), Observed("green", 0, report=PASSED), False),
    ],
)
def test_a_control_without_tests_passes_by_its_state(control: Observed, candidate: Observed, passes: bool) -> None:
    assert _passes(control, candidate) is passes
