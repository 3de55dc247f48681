"""The policy: what a call may do. One file a rule, one line a rule in RULES, asked in this order."""

from __future__ import annotations

from shared.errors import ToolError
from worker.policy.base import CallView, Rule, Situation, Verdict, decide, refusal, when_nobody_can_answer
from worker.policy.changing import changing
from worker.policy.granted import granted
from worker.policy.looking import looking
from worker.policy.sandbox_works import sandbox_works

RULES: tuple[Rule, ...] = (
    sandbox_works,
    looking,
    granted,
    changing,
)

__all__ = ["RULES", "CallView", "Situation", "Verdict", "judgement", "verdict_on"]


def verdict_on(call: CallView, situation: Situation) -> Verdict:
    """Allow, ask or deny."""
    return decide(RULES, call, situation)


def judgement(call: CallView, situation: Situation) -> ToolError | None:
    """What the model is told instead of the call's execution, or None where it is executed."""
    return refusal(when_nobody_can_answer(verdict_on(call, situation)))
