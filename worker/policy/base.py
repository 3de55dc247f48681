"""The types of the policy, the effect of the approval mode on a verdict, and the error of a denied call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, assert_never

from pydantic import BaseModel

from ...shared.errors import ErrorType, ToolError
from ...shared.facts import Trust
from ...shared.lazy import lazy
from ...shared.request import ApprovalMode
from ..tools.base import AnyTool, Kind
from ..tools.context import Touches
from .shell import CommandLine, Decision, SubCommand, classify_line

_INSIDE = "a delegation with approvalMode sandboxed or auto may do it"
_OUTSIDE = "a delegation with approvalMode auto may do it"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about a call, its reason, and the rule that made it."""

    decision: Decision
    reason: str
    rule: str
    error_type: ErrorType = ErrorType.PERMISSION_DENIED
    remedy: str = _INSIDE
    """For ASK: what would allow the call without approval."""
    place: str = ""
    """``file:line`` of a rule from a file."""
    lacking: tuple[SubCommand, ...] = ()
    """For ASK: the commands of a plain line that neither a rule allows nor need no permission."""


@dataclass(frozen=True)
class PolicyCall:
    """The policy's input for one call: its tool and what the call touches."""

    tool: AnyTool
    touches: Touches
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """As validated: with their documented names and with defaults."""
    command: SubCommand | None = None
    """The one command of its line that is judged; None: all of them."""
    params: Any = None
    """As the tool accepted them; only its execution needs them."""

    @classmethod
    def of(cls, tool: AnyTool, params: Any, arguments: Mapping[str, Any]) -> Self:
        """Returns the input for a call with these accepted ``params``, which were made from ``arguments``."""
        if isinstance(params, BaseModel):
            arguments = dict(params)
        return cls(tool, tool.touches(params), arguments, params=params)

    @property
    def title(self) -> str:
        return self.tool.title(self.params)

    @lazy
    def line(self) -> CommandLine | None:
        """The class of its command line; None without one."""
        if self.command is not None:
            return CommandLine(self.command.decision, self.command.reason, (self.command,))
        return None if self.touches.command is None else classify_line(self.touches.command)

    @property
    def reads(self) -> tuple[str, ...]:
        """The programs of a command line that only reads; empty for any other call."""
        line = self.line
        return tuple(each.words[0] for each in line.commands) if line and line.decision is Decision.ALLOW else ()

    @property
    def contained(self) -> bool:
        """Whether its effects stay inside the workspace and the sandbox."""
        stays = self.tool.kind.mutates or self.tool.kind.looks or self.tool.origin.source in ("builtin", "discovered")
        leaves = self.touches.hosts or self.tool.kind is Kind.FETCH or self.tool.needs_approval
        return stays and not leaves

    @property
    def remedy(self) -> str:
        """Which approval mode would allow the call without approval."""
        return _INSIDE if self.contained else _OUTSIDE


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """The policy's input about the run. ``broken``: why the sandbox cannot be used, or None."""

    mode: ApprovalMode
    broken: str | None = None
    allowed_hosts: Sequence[str] = ()
    """Hosts, or patterns of them, that need no approval."""
    rules: Sequence[Rule] = ()
    """The rules of the operator's files."""
    depth: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    workspace: Path | None = None
    """Where the run's files lie, outside of the sandbox; None if there are none."""
    trust: Trust = field(default_factory=Trust)
    """What the conversation has read that the call comes from."""
    above: Sequence[PolicyContext] = ()
    """Those of the runs that this one is nested in: no call may do what it could not do there."""


Rule = Callable[[PolicyCall, PolicyContext], Verdict | None]
"""Returns a verdict, or None where the rule does not apply."""


def apply_mode(verdict: Verdict, call: PolicyCall, policy_context: PolicyContext) -> Verdict:
    """Resolves an ASK verdict by the approval mode. Never changes ALLOW and DENY."""
    if verdict.decision is not Decision.ASK:
        return verdict
    match policy_context.mode:
        case ApprovalMode.READ_ONLY:
            reason = "this delegation is read-only (approvalMode readOnly); describe the needed changes in your answer"
            return replace(verdict, decision=Decision.DENY, reason=reason)
        case ApprovalMode.ASK:
            return verdict
        case ApprovalMode.SANDBOXED:
            inside = call.contained and policy_context.broken is None
            return replace(verdict, decision=Decision.ALLOW) if inside else verdict
        case ApprovalMode.AUTO:
            return replace(verdict, decision=Decision.ALLOW)
        case _:
            assert_never(policy_context.mode)


def denial(verdict: Verdict) -> ToolError | None:
    """Returns the error for a call that may not run, or None. ASK is denied: it is for runs that can ask no person."""
    if verdict.decision is Decision.ALLOW:
        return None
    reason = verdict.reason
    if verdict.decision is Decision.ASK:
        reason += f". This needs a person's approval, and interactive approval is off here; {verdict.remedy}"
    return ToolError(verdict.error_type, f"denied: {reason}.")
