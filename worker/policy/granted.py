"""Rule: what the operator's configuration has granted needs nobody's approval: trusted servers, allowed hosts."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from shared.delegation import ApprovalMode
from worker.policy.base import CallView, Decision, Situation, Verdict
from worker.tools.base import Kind


def granted(call: CallView, situation: Situation) -> Verdict | None:
    if situation.mode is ApprovalMode.READ_ONLY:
        return None
    if call.tool.trusted:
        return Verdict(Decision.ALLOW, f"{call.tool.server or call.tool.name} is trusted by configuration", "granted")
    hosts = call.touches.hosts
    if call.tool.kind is Kind.FETCH and hosts and all(_allowed(host, situation.allowed_hosts) for host in hosts):
        return Verdict(Decision.ALLOW, f"{', '.join(hosts)} may be asked freely", "granted")
    return None


def _allowed(host: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(host.lower(), pattern.lower()) for pattern in patterns)
