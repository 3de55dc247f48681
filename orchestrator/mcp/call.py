"""One call of a tool: its client, what it may do, and its result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...shared.permission import PermissionReply, PermissionRequest
from ...shared.request import DelegationRequest
from ...shared.wire import Wire
from ..service import Service

PROGRESS_SECONDS = 8.0
"""Maximum seconds between two progress notifications; clients end a call that is silent."""

Report = Callable[[float, float | None, str | None], Awaitable[None]]


class Caller:
    """The client of one call."""

    def __init__(self, report: Report, gone: asyncio.Event | None = None, silence: float = PROGRESS_SECONDS) -> None:
        self._report = report
        self.silence = silence
        self._reported = 0
        self.gone = gone or asyncio.Event()
        """Set when the client cancels the call or disconnects."""
        self.reported_at = 0.0

    async def report(self, message: str) -> None:
        """Sends a progress notification if the client asked for them; the number only counts them."""
        if self.gone.is_set():
            return
        self._reported += 1
        self.reported_at = asyncio.get_running_loop().time()
        await self._report(self._reported, None, message)


Ask = Callable[[PermissionRequest], Awaitable[PermissionReply | None]]
"""Asks the user for permission during a call; None: the client did not pass on an answer."""


class Source(Protocol):
    """Returns operations on demand, so that a client that never delegates starts nothing."""

    @property
    def folder(self) -> Path | None:
        """The directory that relative workspace paths start from; None if there are only absolute ones."""
        ...

    @property
    def stays(self) -> bool:
        """Whether the service continues without this client."""
        ...

    async def for_work(self, requests: Sequence[DelegationRequest]) -> Service:
        """Returns operations of a service that executes these. Raises Misconfigured and Unavailable."""
        ...

    async def for_reading(self) -> Service:
        """Returns operations of a service that may have no workers. Raises Misconfigured and Unavailable."""
        ...

    async def if_open(self) -> Service | None:
        """Returns operations if the service is in use already; never starts it."""
        ...


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
