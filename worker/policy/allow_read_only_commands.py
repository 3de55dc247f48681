"""Rule: a command line that provably only reads inside the workspace needs no approval.

Also in a read-only run, where the sandbox mounts the workspace read-only.
"""

from __future__ import annotations

from .base import Decision, PolicyCall, PolicyContext, Verdict


def allow_read_only_commands(call: PolicyCall, _: PolicyContext) -> Verdict | None:
    found = call.classified if call.contained else None
    if found is None or found.decision is not Decision.ALLOW:
        return None
    return Verdict(Decision.ALLOW, "the command line only reads", "allow_read_only_commands")
