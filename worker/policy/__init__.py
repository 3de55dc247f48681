"""The policy: what a call may do. One file a rule, one line a rule in RULES, asked in this order."""

from __future__ import annotations

from shared.errors import ToolError
from worker.policy.allow_reads import allow_reads
from worker.policy.allow_trusted import allow_trusted
from worker.policy.ask_before_changes import ask_before_changes
from worker.policy.base import PolicyCall, PolicyContext, Rule, Verdict, decide, refusal, when_nobody_can_answer
from worker.policy.require_sandbox import require_sandbox

RULES: tuple[Rule, ...] = (
    require_sandbox,
    allow_reads,
    allow_trusted,
    ask_before_changes,
)

__all__ = ["RULES", "PolicyCall", "PolicyContext", "Verdict", "judgement", "verdict_on"]


def verdict_on(call: PolicyCall, policy_context: PolicyContext) -> Verdict:
    """Allow, ask or deny."""
    return decide(RULES, call, policy_context)


def judgement(call: PolicyCall, policy_context: PolicyContext) -> ToolError | None:
    """What the model is told instead of the call's execution, or None where it is executed."""
    return refusal(when_nobody_can_answer(verdict_on(call, policy_context)))
