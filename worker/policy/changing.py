"""Rule: what changes something, or leaves the workspace, is asked about (S004-010)."""

from __future__ import annotations

from worker.policy.base import CallView, Decision, Situation, Verdict
from worker.tools.base import Kind


def changing(call: CallView, _: Situation) -> Verdict | None:
    if call.touches.hosts:
        return Verdict(Decision.ASK, f"{call.tool.name} talks to {', '.join(call.touches.hosts)}", "changing")
    if call.tool.kind.mutates:
        return Verdict(Decision.ASK, f"{call.tool.name} changes something ({call.tool.kind})", "changing")
    if call.tool.kind in (Kind.FETCH, Kind.OTHER):
        return Verdict(Decision.ASK, f"{call.tool.name} acts outside the workspace", "changing")
    return None
