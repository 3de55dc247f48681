"""Rule: a call that changes something, leaves the workspace or requires approval needs approval."""

from __future__ import annotations

from ..tools.base import Kind
from .base import Decision, PolicyCall, PolicyContext, Verdict

_MODE = "a delegation with approvalMode auto may do it"
_HOSTS = f"the operator can add the host to DEPUTIZE_TOOLS_ALLOWED_HOSTS, and {_MODE}. Go on without, and say so"


def ask_before_changes(call: PolicyCall, _: PolicyContext) -> Verdict | None:
    why = _why(call)
    if why is None:
        return None
    if call.contained:
        return Verdict(Decision.ASK, why, "ask_before_changes")
    return Verdict(Decision.ASK, why, "ask_before_changes", remedy=_HOSTS if call.tool.kind is Kind.FETCH else _MODE)


def _why(call: PolicyCall) -> str | None:
    """Returns why the call needs approval, or None."""
    if call.touches.hosts:
        return f"{call.tool.name} connects to {', '.join(call.touches.hosts)}"
    if call.tool.kind.mutates or (call.contained and call.tool.kind is Kind.OTHER):
        return f"{call.tool.name} changes something ({call.tool.kind})"
    if call.tool.kind in (Kind.FETCH, Kind.OTHER):
        return f"{call.tool.name} acts outside the workspace"
    return f"{call.tool.name} requires approval for every call" if call.tool.needs_approval else None
