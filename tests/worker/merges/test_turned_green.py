"""What a result turned green is not lost in a merge without being named."""

from __future__ import annotations

from typing import Any

import pytest

from deputize.shared.facts import Check, Verification
from deputize.worker.merges.turned_green import TurnedGreen

ITEM = {"kind": "command", "run": "make test"}


def check(outcome: str, candidate: str = "red", item: Any = ITEM, base: str | None = None, **tests: list[str]) -> Check:
    fields = {"item": item, "outcome": outcome, "candidate": candidate, "base": base, "tests": tests}
    return Check.model_validate({name: value for name, value in fields.items() if value is not None})


REPAIRED = check("improved", fixed=["a", "b", "c"])
WHOLE = check("evidence", "green")


@pytest.mark.parametrize(
    ("own", "merged", "why"),
    [
        (
            REPAIRED,
            check("improved", preexisting=["a", "z"]),
            "a passes with the changes of one, and fails in the merge",
        ),
        (REPAIRED, check("preexisting", preexisting=["b", "a"]), "a (and 1 more) passes with the changes of one"),
        (REPAIRED, check("inconclusive", preexisting=["c"]), "c passes with"),
        (REPAIRED, check("improved", preexisting=["z"]), ""),
        (REPAIRED, check("no_regression", "green"), ""),
        (WHOLE, check("preexisting"), "it succeeds with the changes of one, and fails in the merge"),
        (WHOLE, check("inconclusive", "trouble"), "it succeeds with"),
        (check("evidence", "green", base="red"), check("inconclusive", "trouble", base="trouble"), ""),
        (WHOLE, check("inconclusive", unsteady=["a"]), ""),
        (WHOLE, check("inconclusive", flickering=["a"]), ""),
        (WHOLE, check("inconclusive", "green"), ""),
        (WHOLE, check("preexisting", item={"kind": "command", "run": "make lint"}), ""),
        (check("preexisting"), check("preexisting"), ""),
        (WHOLE, check("refuted"), ""),
    ],
)
def test_what_was_green_must_be_green(own: Check, merged: Check, why: str) -> None:
    green = TurnedGreen({"one": [own], "two": ()})
    found = Verification(verdict="improved", why="as it was", checks=[merged])
    kept = green.kept_in(["one", "two"], found)
    assert (kept is found) is (why == "")
    assert (kept.verdict, kept.checks[0].outcome) == (("refuted", "refuted") if why else ("improved", merged.outcome))
    assert kept.why.startswith(why or "as it was")
    assert green.kept_in(["two"], found) is found


def test_what_is_refuted_anyway_keeps_its_reason() -> None:
    found = Verification(verdict="refuted", why="d fails", checks=[check("refuted"), check("preexisting")])
    kept = TurnedGreen({"one": [WHOLE]}).kept_in(["one"], found)
    assert (kept.why, [each.outcome for each in kept.checks]) == ("d fails", ["refuted", "refuted"])


def test_a_test_of_two_checks_counts_in_the_check_that_it_passed_in() -> None:
    strict = {"kind": "command", "run": "make strict"}
    own = [check("improved", fixed=["a"]), check("preexisting", item=strict, preexisting=["a"])]
    merged = [check("evidence", "green"), check("preexisting", item=strict, preexisting=["a"])]
    found = Verification(verdict="improved", checks=merged)
    assert TurnedGreen({"one": own}).kept_in(["one"], found) is found
