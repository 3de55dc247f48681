"""Rule: a command line with a forbidden command never runs, in any mode: the sandbox is the second line of defence."""

from __future__ import annotations

from deputize.shared.errors import ErrorType
from deputize.worker.policy.base import PolicyCall, PolicyContext, Verdict
from deputize.worker.policy.decision import Decision

_INSTEAD = "it was blocked and nothing ran. Do the task without it, or report in your answer what a person has to run"


def forbid_commands(call: PolicyCall, _: PolicyContext) -> Verdict | None:
    found = call.classified
    if found is None or found.decision is not Decision.DENY:
        return None
    if found.malformed:
        return Verdict(Decision.DENY, found.reason, "forbid_commands", ErrorType.INVALID_TOOL_PARAMS)
    reason = f"this command line is forbidden: {found.reason}; {_INSTEAD}"
    return Verdict(Decision.DENY, reason, "forbid_commands")
