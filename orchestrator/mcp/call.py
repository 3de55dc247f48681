"""One call of a tool: its client, where the operations come from, and what it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from ...shared.permission import PermissionReply, PermissionRequest
from ...shared.wire import Wire
from .source import Source
from .waiting import Caller

Ask = Callable[[PermissionRequest], Awaitable[PermissionReply | None]]
"""Asks the user for permission during a call; None: the client did not pass on an answer."""


class Record(Protocol):
    """Puts what a call has done or was refused into the audit log, where this server keeps one."""

    async def __call__(self, ids: Sequence[str], status: int = 200, tool: str | None = None) -> None:
        """``ids``: the delegations that it concerns; ``tool``: where it is not the one that was called."""
        ...


@dataclass(frozen=True, slots=True)
class Elicitation:
    """How the client of a call asks its user."""

    ask: Ask | None
    """None where the result of the call is the question, and the client repeats the call with the answer."""


@dataclass(frozen=True, slots=True)
class Round:
    """What a repeated call continues."""

    number: int
    ids: Sequence[str]
    """The delegations that the first call submitted."""
    replies: Mapping[str, PermissionReply]
    """The user's answers by request."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool."""

    source: Source
    caller: Caller
    record: Record
    waiting: Callable[[], AbstractContextManager[None]]
    """Returns the block of a call that waits. Raises Unavailable if too many do."""
    by: str | None = None
    """The name of the token of its client, where this server knows it."""
    elicitation: Elicitation | None = None
    """None where its client cannot ask, or may not pass on the answer."""
    repeats: Round | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    line: str
    content: Wire
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """The result of a call that the client repeats with an answer."""

    request: PermissionRequest
    round: Round
