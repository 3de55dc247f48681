"""The policy: what a tool call may do. One file per rule, one entry per rule in RULES, evaluated in this order."""

from __future__ import annotations

from collections.abc import Sequence

from deputize.worker.policy.allow_reads import allow_reads
from deputize.worker.policy.allow_trusted import allow_trusted
from deputize.worker.policy.ask_before_changes import ask_before_changes
from deputize.worker.policy.base import Decision, PolicyCall, PolicyContext, Rule, Verdict, apply_mode, denial
from deputize.worker.policy.require_sandbox import require_sandbox

RULES: tuple[Rule, ...] = (
    require_sandbox,
    allow_reads,
    allow_trusted,
    ask_before_changes,
)

__all__ = ["RULES", "PolicyCall", "PolicyContext", "Verdict", "decide", "denial"]


def decide(call: PolicyCall, policy_context: PolicyContext, rules: Sequence[Rule] = RULES) -> Verdict:
    """Returns the verdict of the first rule that matches, after the approval mode. Without a match: DENY."""
    verdict = next((matched for rule in rules if (matched := rule(call, policy_context))), None)
    if verdict is None:
        return Verdict(Decision.DENY, f"no rule allows {call.tool.name}", "default")
    return apply_mode(verdict, call, policy_context)
