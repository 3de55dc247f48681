"""Rule: reading the workspace is allowed."""

from __future__ import annotations

from .base import Decision, PolicyCall, PolicyContext, Verdict


def allow_reads(call: PolicyCall, _: PolicyContext) -> Verdict | None:
    if call.tool.kind.looks and not call.touches.hosts and not call.tool.needs_approval:
        return Verdict(Decision.ALLOW, "it only reads the workspace", "allow_reads")
    return None
