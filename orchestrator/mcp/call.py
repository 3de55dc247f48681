"""One call of a tool: its client, where the operations come from, and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from deputize.orchestrator.mcp.source import Source
from deputize.orchestrator.mcp.waiting import Caller
from deputize.shared.wire import Wire


class Record(Protocol):
    """Puts what a call has done or was refused into the audit log, where this server keeps one."""

    async def __call__(self, ids: Sequence[str], status: int = 200, tool: str | None = None) -> None:
        """``ids``: the delegations that it concerns; ``tool``: where it is not the one that was called."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool."""

    source: Source
    caller: Caller
    record: Record
    by: str | None = None
    """The name of the token of its client, where this server knows it."""


@dataclass(frozen=True, slots=True)
class Answer:
    line: str
    content: Wire
    is_error: bool = False
