"""The policy: what a tool call may do. The first rule with a verdict counts.

The rules of the operator's files come after those of SAFETY, which no file can widen, and before the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...shared.request import DelegationRequest
from ..threads import run_in_thread
from .base import Decision, PolicyCall, PolicyContext, Rule, Verdict, apply_mode, denial
from .builtin_rules import RULES, SAFETY
from .shell import SubCommand, strictest

__all__ = [
    "RULES",
    "SAFETY",
    "PolicyCall",
    "PolicyContext",
    "Rule",
    "Verdict",
    "decide",
    "denial",
    "judge",
    "matched",
    "within",
]


def matched(call: PolicyCall, policy_context: PolicyContext, rules: Sequence[Rule] | None = None) -> Verdict:
    """Returns the verdict of the first rule that matches, before the approval mode. Without a match: DENY."""
    if rules is None:
        rules = (*SAFETY, *policy_context.rules, *RULES[len(SAFETY) :])
    verdict = next((found for rule in rules if (found := rule(call, policy_context))), None)
    if verdict and verdict.decision is Decision.ASK and call.line:
        return _combined(verdict, call, call.line.asking, policy_context)
    return verdict or Verdict(Decision.DENY, f"no rule allows {call.tool.name}", "default")


def _combined(asks: Verdict, call: PolicyCall, asking: Sequence[SubCommand], policy_context: PolicyContext) -> Verdict:
    """Returns the verdict on a plain line: rules of files that allow its commands one by one allow the line, unless
    one of them asks about it as a whole."""
    if asks.place or len(asking) < 2:
        return replace(asks, lacking=tuple(asking))
    alone = [matched(replace(call, command=each), policy_context, policy_context.rules) for each in asking]
    lacking = tuple(each for each, found in zip(asking, alone, strict=True) if found.decision is not Decision.ALLOW)
    if not lacking:
        return alone[0]
    if len(lacking) == len(asking):
        return replace(asks, lacking=lacking)
    named = ", ".join(f"{' '.join(each.words)!r} ({each.reason})" for each in lacking)
    return replace(asks, reason=f"{asks.reason}. No rule allows {named}", lacking=lacking)


def decide(call: PolicyCall, policy_context: PolicyContext, rules: Sequence[Rule] | None = None) -> Verdict:
    """Returns the verdict of the first rule that matches, after the approval mode. Without a match: DENY.

    For a nested run the strictest one of its own verdict and of those of the runs above it.
    """
    contexts = (policy_context, *policy_context.above)
    verdicts = [apply_mode(matched(call, each, rules), call, each) for each in contexts]
    decision = strictest(verdict.decision for verdict in verdicts)
    lacking = tuple(dict.fromkeys(each for verdict in verdicts for each in verdict.lacking))
    return replace(next(verdict for verdict in verdicts if verdict.decision is decision), lacking=lacking)


def within(own: PolicyContext, parent: DelegationRequest, depth: int) -> PolicyContext:
    """Returns the context of a run above the one with ``own``: its mode, labels and depth are others."""
    return replace(own, mode=parent.approval_mode, labels=parent.labels, depth=depth)


async def judge(call: PolicyCall, policy_context: PolicyContext) -> Verdict:
    """Like ``decide``; rules of files and command lines take computing time, so they run off the event loop."""
    if policy_context.rules or call.touches.command is not None:
        return await run_in_thread(decide, call, policy_context)
    return decide(call, policy_context)
