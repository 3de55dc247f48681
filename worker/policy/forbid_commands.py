"""Rule: a command line with a forbidden command never runs, in any mode: the sandbox is the second line of defence."""

from __future__ import annotations

from ...shared.errors import ErrorType
from ...shared.text import clip
from .base import Decision, PolicyCall, PolicyContext, Verdict

_INSTEAD = "it was blocked, and nothing ran. Do the task without it, or report in your answer what a person has to run"


def forbid_commands(call: PolicyCall, _: PolicyContext) -> Verdict | None:
    found = call.classified
    if found is None or found.decision is not Decision.DENY:
        return None
    if found.malformed:
        return Verdict(Decision.DENY, found.reason, "forbid_commands", ErrorType.INVALID_TOOL_PARAMS)
    forbidden = next((each for each in found.commands if each.decision is Decision.DENY), None)
    what = f"the command {clip(' '.join(forbidden.words), 200)!r}" if forbidden else "the command line"
    why = forbidden.reason if forbidden else found.reason
    reason = f"{what} is forbidden, because {why}; {_INSTEAD}"
    return Verdict(Decision.DENY, reason, "forbid_commands")
