"""Rule: a command line that provably only reads inside the workspace needs no approval."""

from __future__ import annotations

from deputize.shared.request import ApprovalMode
from deputize.worker.policy.base import PolicyCall, PolicyContext, Verdict
from deputize.worker.policy.decision import Decision


def allow_read_only_commands(call: PolicyCall, policy_context: PolicyContext) -> Verdict | None:
    if policy_context.mode is ApprovalMode.READ_ONLY or not call.contained:
        return None
    found = call.classified
    if found is None or found.decision is not Decision.ALLOW:
        return None
    return Verdict(Decision.ALLOW, "the command line only reads", "allow_read_only_commands")
