"""Tests that results turned green: they must be green in a merge, too, though they failed before all of them.

Compared with the files before, a test that fails in the merge as it failed there is no worse. Compared with the result
that had repaired it, work is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...shared.delegation import Delegation
from ...shared.facts import Check, Verification

_STILL_RED = ("preexisting", "improved", "inconclusive")
_BY_CHANCE = ("unsteady", "flickering")


@dataclass(frozen=True, slots=True)
class TurnedGreen:
    """The checks of each result that is merged, by its delegation's id."""

    checks: Mapping[str, Sequence[Check]]

    @classmethod
    def of(cls, delegations: Sequence[Delegation]) -> TurnedGreen:
        return cls({each.id: each.result.verification.checks if each.result else () for each in delegations})

    def kept_in(self, chosen: Collection[str], found: Verification) -> Verification:
        """Returns what was found of the merge of some results: refuted where it lost what one of them had turned green.

        Of tests those are known that results list, by their ids; of a command that succeeded as a whole, its check.
        """
        checks = [self._kept(chosen, check) for check in found.checks]
        lost = [new.why for new, old in zip(checks, found.checks, strict=True) if new is not old]
        if not lost:
            return found
        why = found.why if found.verdict == "refuted" else lost[0]
        return found.model_copy(update={"checks": checks, "verdict": "refuted", "why": why})

    def _kept(self, chosen: Collection[str], check: Check) -> Check:
        for id, given in self.checks.items():
            own = [each for each in given if each.item == check.item] or given
            if id in chosen and (lost := next(filter(None, (_lost(each, check) for each in own)), "")):
                why = f"{lost} with the changes of {id}, and fails in the merge"
                return check.model_copy(update={"outcome": "refuted", "why": why})
        return check


def _lost(own: Check, merged: Check) -> str:
    """Returns what a result's check had turned green and is red in the merge: `test_a (and 1 more) passes`, if so."""
    if merged.outcome not in _STILL_RED:
        return ""
    tests = sorted({*own.tests.get("fixed", ())} & {*merged.tests.get("preexisting", ())})
    if tests:
        return f"{tests[0]} (and {len(tests) - 1} more) passes" if len(tests) > 1 else f"{tests[0]} passes"
    by_chance = any(merged.tests.get(kind) for kind in _BY_CHANCE)
    is_red = merged.candidate in ("red", "trouble") and merged.base == own.base and not by_chance
    return "it succeeds" if is_red and own.outcome == "evidence" and own.item == merged.item else ""
