"""The built-in rules of the policy. ``RULES`` at the end lists them in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from ...shared.errors import ErrorType
from ...shared.git.executed_files import run_by_hosts
from ...shared.request import ApprovalMode
from ...shared.text import clip
from ..tools.base import Kind
from ..tools.submit_result import SubmitResult
from .base import Decision, PolicyCall, PolicyContext, Rule, Verdict

_INSTEAD = "it was blocked, and nothing ran. Do the task without it, or report in your answer what a person has to run"
_HOSTS = "the operator can add the host to DEPUTIZE_TOOLS_ALLOWED_HOSTS, and {}. Go on without, and say so"


def require_sandbox(call: PolicyCall, policy_context: PolicyContext) -> Verdict | None:
    """A tool that needs the sandbox never runs without it, in any mode."""
    if policy_context.broken is None or not call.tool.availability.needs_sandbox:
        return None
    reason = f"{call.tool.name} needs the sandbox, which does not work on this worker: {policy_context.broken}"
    return Verdict(Decision.DENY, reason, "require_sandbox", ErrorType.SANDBOX_UNAVAILABLE)


def forbid_commands(call: PolicyCall, _: PolicyContext) -> Verdict | None:
    """A command line with a forbidden command never runs, in any mode: the sandbox is the second line of defence."""
    found = call.line
    if found is None or found.decision is not Decision.DENY:
        return None
    if found.malformed:
        return Verdict(Decision.DENY, found.reason, "forbid_commands", ErrorType.INVALID_TOOL_PARAMS)
    forbidden = next((each for each in found.commands if each.decision is Decision.DENY), None)
    what = f"the command {clip(' '.join(forbidden.words), 200)!r}" if forbidden else "the command line"
    why = forbidden.reason if forbidden else found.reason
    reason = f"{what} is forbidden, because {why}; {_INSTEAD}"
    return Verdict(Decision.DENY, reason, "forbid_commands")


def allow_output(call: PolicyCall, _: PolicyContext) -> Verdict | None:
    """Handing in the output that the caller asked for changes nothing, like the last words; no rule forbids it."""
    if isinstance(call.tool, SubmitResult):
        return Verdict(Decision.ALLOW, "it hands in the output of the run", "allow_output")
    return None


def allow_reads(call: PolicyCall, _: PolicyContext) -> Verdict | None:
    """Reading the workspace is allowed."""
    if call.tool.kind.looks and not call.touches.hosts and not call.tool.needs_approval:
        return Verdict(Decision.ALLOW, "it only reads the workspace", "allow_reads")
    return None


def allow_trusted(call: PolicyCall, policy_context: PolicyContext) -> Verdict | None:
    """What the operator's configuration trusts needs no approval: trusted servers, allowed hosts."""
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


def allow_read_only_commands(call: PolicyCall, _: PolicyContext) -> Verdict | None:
    """A command line that provably only reads inside the workspace needs no approval.

    Also in a read-only run, where the sandbox mounts the workspace read-only.
    """
    found = call.line if call.contained else None
    if found is None or found.decision is not Decision.ALLOW:
        return None
    return Verdict(Decision.ALLOW, "the command line only reads", "allow_read_only_commands")


def ask_before_changes(call: PolicyCall, _: PolicyContext) -> Verdict | None:
    """A call that changes something, leaves the workspace or requires approval needs approval."""
    why = _why(call)
    if why is None:
        return None
    remedy = _HOSTS.format(call.remedy) if call.tool.kind is Kind.FETCH else call.remedy
    return Verdict(Decision.ASK, why, "ask_before_changes", remedy=remedy)


def _why(call: PolicyCall) -> str | None:
    """Returns why the call needs approval, or None."""
    if call.touches.hosts:
        return f"{call.tool.name} connects to {', '.join(call.touches.hosts)}"
    if call.tool.kind.mutates or (call.contained and call.tool.kind is Kind.OTHER):
        executed = run_by_hosts(call.touches.paths)
        pushed = f", and a git host may execute {', '.join(executed)} once it is pushed" if executed else ""
        return f"{call.tool.name} changes something ({call.tool.kind}){pushed}"
    if call.tool.kind in (Kind.FETCH, Kind.OTHER):
        return f"{call.tool.name} acts outside the workspace"
    return f"{call.tool.name} requires approval for every call" if call.tool.needs_approval else None


SAFETY: tuple[Rule, ...] = (require_sandbox, forbid_commands, allow_output)
"""Those that no rule of a file can override."""
RULES: tuple[Rule, ...] = (
    *SAFETY,
    allow_reads,
    allow_trusted,
    allow_read_only_commands,
    ask_before_changes,
)
