"""Where tools come from that exist only while a run lasts: MCP servers, a discovery command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol

from worker.sandbox.base import Sandbox
from worker.schemas.pool import ValidatorPool
from worker.tools.base import AnyTool
from worker.workspace.files import Files


@dataclass(frozen=True, slots=True)
class ToolSourceContext:
    """The run for which tools are opened."""

    delegation_id: str
    patterns: Sequence[str] | None
    """What the request asks for; None is the default kit."""
    files: Files
    sandbox: Sandbox
    warn: Callable[[str], None]
    """Tells people that something is missing; the run goes on without it."""
    hide: Callable[[Sequence[str]], None] = lambda values: None
    """Makes these values unreadable wherever the run says something."""
    validators: ValidatorPool = field(default_factory=ValidatorPool)
    """Judges what strangers declare."""
    read_only: bool = False
    """Whether nothing that the tools start may change the run's files."""
    missing: list[str] = field(default_factory=list[str])
    """How the names begin of tools that cannot be had right now."""

    def miss(self, prefix: str) -> None:
        """Says that tools whose names begin so cannot be had right now: to ask for them is no mistake."""
        self.missing.append(prefix)

    def wants(self, prefix: str) -> bool:
        """Whether any tool whose name begins with ``prefix`` can be in the kit: what nobody asked for is not opened."""
        if self.patterns is None:
            return True
        return any(_may_fit(pattern, prefix) for pattern in self.patterns)

    def excuses(self, pattern: str) -> bool:
        """Whether tools that this pattern asks for may be among those that cannot be had right now."""
        return any(_may_fit(pattern, prefix) for prefix in self.missing)


class Source(Protocol):
    """One place that tools come from."""

    def open(self, place: ToolSourceContext) -> AbstractAsyncContextManager[Sequence[AnyTool]]:
        """The tools, ready to be called until the block ends. What cannot be had is warned of, never raised."""
        ...


def _may_fit(pattern: str, prefix: str) -> bool:
    """Whether the pattern can mean a name that begins with ``prefix``."""
    return pattern.startswith(prefix) or fnmatchcase(prefix, pattern) or prefix.startswith(_stem(pattern))


def _stem(pattern: str) -> str:
    """What stands before the first wildcard, where there is one: ``mcp__git*`` → ``mcp__git``."""
    cut = min((pattern.find(mark) for mark in "*?[" if mark in pattern), default=-1)
    return pattern[:cut] if cut >= 0 else "\0"
