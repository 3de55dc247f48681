"""The hooks of parts that are called in turns: the core calls them without knowing the parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..tools.base import AnyTool, ToolContext, ToolResult
from .limits import LimitReached


@dataclass(frozen=True, slots=True)
class PermittedCall:
    """A call that is executed: it is permitted, and its step has started."""

    tool: AnyTool
    params: Any
    context: ToolContext


GoOn = Callable[[], Awaitable[ToolResult]]
"""Executes a call, by the parts behind this one and its tool; a tool that fails returns its error as a result."""
BeforeTurn = Callable[[LimitReached | None], Awaitable[None]]
"""The hook ``before_turn`` of a part."""
Around = Callable[[PermittedCall, GoOn], Awaitable[ToolResult]]
"""The hook ``around`` of a part."""


@dataclass(frozen=True, slots=True)
class TurnHooks:
    """Hooks of all parts of one run that have them, in the order of the parts."""

    before_turn: Sequence[BeforeTurn] = ()
    around: Sequence[Around] = ()


async def call_each(hooks: Sequence[BeforeTurn], limit: LimitReached | None = None) -> None:
    """Raises ``LimitReached``; not before the final turn, whose ``limit`` was reached already."""
    for before_turn in hooks:
        try:
            await before_turn(limit)
        except LimitReached:
            if limit is None:
                raise
