"""What a tool may know of the run it works for, and what it says of a call beforehand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from shared.delegation import DelegationRequest, ToolAgentResult
from worker.sandbox.base import Sandbox
from worker.schemas.pool import ValidatorPool
from worker.workspace.files import Files


@dataclass(frozen=True, slots=True)
class Touches:
    """What a call is about to touch: the policy and the approval question are built from it."""

    paths: tuple[str, ...] = ()
    command: str | None = None
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a child, and the unified diff of what it changed in its workspace."""

    result: ToolAgentResult
    patch: str


class Subagents(Protocol):
    """The delegations of one run's own, as its tools know them."""

    @property
    def depth_left(self) -> int:
        """How many levels there may be below this run."""
        ...

    async def delegate(self, ctx: ToolContext, request: DelegationRequest, *, copy: bool) -> Outcome:
        """Has the request carried out by another run, and waits for its end.

        ``copy`` gives it a copy of this run's files as they are now. Raises ``ToolError`` for what the model can
        correct, and ``Fenced``.
        """
        ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """All a tool may know of the run it works for."""

    delegation_id: str
    call_id: str
    files: Files
    sandbox: Sandbox
    session_id: str | None = None
    message_id: str | None = None
    children: Subagents | None = None
    """The way to hand work over to delegations of its own; None where the run may not."""
    on_metadata: Callable[[str | None, Mapping[str, Any]], None] = lambda title, fields: None
    validators: ValidatorPool = field(default_factory=ValidatorPool)
    """Judges arguments whose judgement may take long."""

    def metadata(self, title: str | None = None, **fields: Any) -> None:
        """Live news from inside the tool: a ``step_updated`` frame."""
        self.on_metadata(title, fields)


@dataclass(frozen=True, slots=True)
class InitContext:
    """What a tool may know of the run it is made ready for."""

    delegation_id: str
    skills: Mapping[str, str] = field(default_factory=dict[str, str])
    """The skills there are: name → description."""
    depth_left: int = 0
    """How many levels of delegations there may be below this one."""
