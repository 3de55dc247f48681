"""Results of every kind with the mark and the words that each place shows of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from deputize.shared.delegation import Status, TerminationReason, ToolAgentResult
from deputize.shared.facts import Verification

LIE: Mapping[str, Any] = {"claim": "`a.py` changed", "evidence": "call_1", "verdict": "refuted"}
RED: Mapping[str, Any] = {"claim": "tests pass", "evidence": "call_1", "verdict": "refuted"}
DENIED: dict[str, Any] = {"tool_call_count": 1, "failed_call_count": 1, "denied_call_count": 1, "only_denied": True}


class Marked(NamedTuple):
    sign: str
    words: str
    """Those after the sign; the first of them is the headline."""
    fields: Mapping[str, Any]
    reason: TerminationReason = TerminationReason.COMPLETED

    @property
    def headline(self) -> str:
        return self.words.partition(" (")[0]

    @property
    def verdict(self) -> str:
        """What the list has in its column."""
        verdict = self.fields.get("verification", {}).get("verdict", "unverified")
        return verdict if verdict != "unverified" else "unproven" if self.sign == "?" else "–"

    @property
    def result(self) -> ToolAgentResult:
        stopped = (TerminationReason.CANCELLED, TerminationReason.WRAPPED_UP)
        is_met = Verification.model_validate(self.fields.get("verification", {})).is_met
        status = Status.SUCCEEDED if is_met else Status.FAILED
        if self.reason is not TerminationReason.COMPLETED:
            status = Status.CANCELLED if self.reason in stopped else Status.FAILED
        given = {"delegation_id": "dlg_1", "status": status, "termination_reason": self.reason}
        return ToolAgentResult.model_validate({**given, **self.fields})


def judged(verdict: str, require: str | None = "passed", *claims: Mapping[str, Any]) -> dict[str, Any]:
    return {"verification": {"verdict": verdict, "require": require, "claims": [*claims]}}


MARKED = (
    Marked("✓", "succeeded (completed)", {}),
    Marked("✓", "succeeded (completed, 1 call denied)", DENIED | {"only_denied": False}),
    Marked("✓", "verified (completed)", judged("verified")),
    Marked("✓", "verified (completed, 1 claim refuted, 1 call denied)", judged("verified", "verified", LIE) | DENIED),
    Marked("✓", "passed (completed, 1 claim refuted)", judged("passed", "passed", LIE)),
    Marked("?", "passed (completed, 1 claim refuted)", judged("passed", "passed", RED)),
    Marked("✓", "improved (completed)", judged("improved", "improved")),
    Marked("?", "unproven (completed, 1 claim refuted)", judged("unverified", None, LIE)),
    Marked("?", "unproven (completed, 1 call denied)", DENIED),
    Marked("?", "passed (completed, 1 call denied)", judged("passed") | DENIED),
    Marked("?", "passed (completed, verified required)", judged("passed", "verified")),
    Marked("?", "improved (completed, passed required)", judged("improved")),
    Marked("?", "inconclusive (completed)", judged("inconclusive")),
    Marked("?", "inconclusive (completed)", judged("inconclusive", None)),
    Marked("✗", "refuted (completed)", judged("refuted", "improved")),
    Marked("✗", "failed (max_turns)", {}, TerminationReason.MAX_TURNS),
    Marked("✗", "failed (timeout, inconclusive)", judged("inconclusive"), TerminationReason.TIMEOUT),
    Marked("✗", "cancelled (wrapped_up, refuted)", judged("refuted"), TerminationReason.WRAPPED_UP),
    Marked("–", "cancelled (cancelled)", {}, TerminationReason.CANCELLED),
)
"""One result of an earlier version, without a requirement, among them: it succeeded, and is inconclusive."""
