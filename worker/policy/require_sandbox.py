"""Rule: a tool that needs the sandbox never runs without it, in any mode."""

from __future__ import annotations

from ...shared.errors import ErrorType
from .base import Decision, PolicyCall, PolicyContext, Verdict


def require_sandbox(call: PolicyCall, policy_context: PolicyContext) -> Verdict | None:
    if policy_context.broken is None or not call.tool.needs_sandbox:
        return None
    reason = f"{call.tool.name} needs the sandbox, which does not work on this worker: {policy_context.broken}"
    return Verdict(Decision.DENY, reason, "require_sandbox", ErrorType.SANDBOX_UNAVAILABLE)
