"""Rule: looking at the workspace is free."""

from __future__ import annotations

from worker.policy.base import CallView, Decision, Situation, Verdict


def looking(call: CallView, _: Situation) -> Verdict | None:
    if call.tool.kind.looks and not call.touches.hosts and not call.tool.needs_approval:
        return Verdict(Decision.ALLOW, "it only reads the workspace", "looking")
    return None
