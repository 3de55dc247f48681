"""Rule: what needs the sandbox never runs without it, in no mode."""

from __future__ import annotations

from shared.errors import ErrorType
from worker.policy.base import CallView, Decision, Situation, Verdict


def sandbox_works(call: CallView, situation: Situation) -> Verdict | None:
    if situation.broken is None or not call.tool.needs_sandbox:
        return None
    reason = f"{call.tool.name} needs the sandbox, which does not work on this worker: {situation.broken}"
    return Verdict(Decision.DENY, reason, "sandbox_works", ErrorType.SANDBOX_UNAVAILABLE)
