"""Rule: what changes something, leaves the workspace or wants to be asked about, is asked about (S004-010)."""

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
    if call.tool.needs_approval:
        return Verdict(Decision.ASK, f"{call.tool.name} wants every call approved", "changing")
    return None
