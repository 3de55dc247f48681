"""Rule: what the operator's configuration trusts needs no approval: trusted servers, allowed hosts."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from ...shared.request import ApprovalMode
from ..tools.base import Kind
from .base import Decision, PolicyCall, PolicyContext, Verdict


def allow_trusted(call: PolicyCall, policy_context: PolicyContext) -> Verdict | None:
    if policy_context.mode is ApprovalMode.READ_ONLY:
        return None
    if call.tool.trusted:
        return Verdict(
            Decision.ALLOW, f"{call.tool.origin.server or call.tool.name} is trusted by configuration", "allow_trusted"
        )
    hosts = call.touches.hosts
    if call.tool.kind is Kind.FETCH and hosts and all(_allowed(host, policy_context.allowed_hosts) for host in hosts):
        return Verdict(Decision.ALLOW, f"{', '.join(hosts)} is allowed by configuration", "allow_trusted")
    return None


def _allowed(host: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(host.lower(), pattern.lower()) for pattern in patterns)
