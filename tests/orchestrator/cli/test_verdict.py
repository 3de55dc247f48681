"""The verdict as `run` and `show` print it."""

from __future__ import annotations

from deputize.orchestrator.cli import output
from deputize.shared.facts import Check, Verification


def test_a_verdict_has_a_line_per_check_and_none_where_nothing_was_checked() -> None:
    check = Check(
        item={"run": "make test"}, outcome="no_regression", why="it succeeds", base="green", candidate="green"
    )
    changed = Check(item={"paths": ["a", "b"]}, outcome="refuted", why="no change matches b", candidate="red")
    found = Verification(verdict="refuted", checks=[check, changed], restored=["tests/a.py"], why="")
    assert output.verdict(found) == [
        "verdict    refuted",
        "check      no regression: make test (base green, candidate green): it succeeds",
        "check      refuted: a, b (candidate red): no change matches b",
        "restored   for the checks: tests/a.py",
    ]
    assert output.verdict(Verification()) == []
    assert output.verdict(Verification.incomplete("x")) == ["verdict    inconclusive: the checks were not completed: x"]
