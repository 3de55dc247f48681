"""What a rule is, and how the rules' opinions become allow, ask or deny for one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from shared.delegation import ApprovalMode
from shared.errors import ErrorType, ToolError
from worker.tools.base import AnyTool, Kind
from worker.tools.context import Touches


class Decision(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may happen to a call, why, and which rule said so."""

    decision: Decision
    reason: str
    rule: str
    error_type: ErrorType = ErrorType.PERMISSION_DENIED
    remedy: str = "a delegation with approvalMode sandboxed or auto may do it"
    """Of a question: what makes it unnecessary to ask."""


@dataclass(frozen=True, slots=True)
class PolicyCall:
    """A call as the policy sees it: its tool and what it is about to touch."""

    tool: AnyTool
    touches: Touches

    @property
    def contained(self) -> bool:
        """Whether its effects stay inside the workspace and the sandbox."""
        stays = self.tool.kind.mutates or self.tool.kind.looks or self.tool.source in ("builtin", "discovered")
        leaves = self.touches.hosts or self.tool.kind is Kind.FETCH or self.tool.needs_approval
        return stays and not leaves


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """What a rule may know beside the call. ``broken`` is why the sandbox cannot be used, or None."""

    mode: ApprovalMode
    broken: str | None = None
    allowed_hosts: Sequence[str] = ()
    """Hosts, or patterns of them, that need nobody's approval."""


Rule = Callable[[PolicyCall, PolicyContext], Verdict | None]
"""An opinion, or None where the rule has none."""


def decide(rules: Sequence[Rule], call: PolicyCall, policy_context: PolicyContext) -> Verdict:
    """Rules in order, the first opinion counts, silence denies; then the mode shifts what would ask."""
    opinions = (rule(call, policy_context) for rule in rules)
    verdict = next((opinion for opinion in opinions if opinion), None)
    if verdict is None:
        return Verdict(Decision.DENY, f"no rule allows {call.tool.name}", "silence")
    return shifted(verdict, call, policy_context)


def shifted(verdict: Verdict, call: PolicyCall, policy_context: PolicyContext) -> Verdict:
    """What the approval mode makes of a question. It never touches allow and deny."""
    if verdict.decision is not Decision.ASK:
        return verdict
    match policy_context.mode:
        case ApprovalMode.READ_ONLY:
            reason = "this delegation is read-only (approvalMode readOnly); say in your answer what should be changed"
            return replace(verdict, decision=Decision.DENY, reason=reason)
        case ApprovalMode.ASK:
            return verdict
        case ApprovalMode.SANDBOXED:
            inside = call.contained and policy_context.broken is None
            return replace(verdict, decision=Decision.ALLOW) if inside else verdict
        case ApprovalMode.AUTO:
            return replace(verdict, decision=Decision.ALLOW)
        case _:
            assert_never(policy_context.mode)


def when_nobody_can_answer(verdict: Verdict) -> Verdict:
    """The last step as long as there is nobody to ask: a question nobody hears is a no."""
    if verdict.decision is not Decision.ASK:
        return verdict
    return replace(
        verdict,
        decision=Decision.DENY,
        reason=f"{verdict.reason}. This needs a person's approval, and nobody can be asked in this version; "
        f"{verdict.remedy}",
    )


def refusal(verdict: Verdict) -> ToolError | None:
    """What the model is told of a denied call, or None where it may go on."""
    if verdict.decision is Decision.ALLOW:
        return None
    return ToolError(verdict.error_type, f"denied: {verdict.reason}.")
