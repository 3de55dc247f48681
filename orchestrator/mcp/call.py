"""Waits for delegations on behalf of a client: reports every step, and notices that the client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...shared.delegation import StepStatus
from ...shared.events import (
    AnyEvent,
    Heartbeat,
    ModelRetried,
    PermissionAnswered,
    PermissionRequested,
    ResumedWaiting,
    RunResumed,
    RunRetried,
    RunStarted,
    StepCompleted,
    StepStarted,
    Waiting,
)
from ...shared.permission import PermissionReply, PermissionRequest, answer_words
from ...shared.request import DelegationRequest
from ...shared.text import clip, visible
from ...shared.wire import Wire
from ..service import Service, follow_unless_paused, refuse_paused

PROGRESS_SECONDS = 8.0
"""Maximum seconds between two progress notifications; clients end a call that is silent."""
MAX_MESSAGE = 200
NEWS = PermissionRequested | PermissionAnswered | Waiting | ResumedWaiting | RunResumed
"""The events after which a permission request may have come or been answered."""

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


class Interruption(Protocol):
    """What goes on beside a wait, and may end it."""

    news: asyncio.Event
    """Set when a delegation begins or stops to wait for something."""
    line: str | None
    """What is reported in place of the state of the delegations."""

    async def run(self) -> object:
        """Returns what ends the wait."""
        ...


async def wait_for(
    operations: Service,
    ids: Sequence[str],
    caller: Caller,
    seconds: float | None = None,
    beside: Interruption | None = None,
) -> object:
    """Returns when all are finished, after ``seconds``, or when the client has gone: None.

    Where ``beside`` ends before that: what it returns.
    """
    loop = asyncio.get_running_loop()
    deadline = None if seconds is None else loop.time() + seconds
    watch = _Watch(operations, ids, caller, beside)
    following = asyncio.gather(*(watch.follow(id) for id in ids))
    leaving = asyncio.create_task(caller.gone.wait())
    running = asyncio.create_task(beside.run() if beside else asyncio.Event().wait())
    ends: set[asyncio.Future[Any]] = {following, leaving, running}
    caller.reported_at = loop.time()
    try:
        while not any(end.done() for end in ends):
            now = loop.time()
            if deadline is not None and now >= deadline:
                return None
            if now - caller.reported_at >= caller.silence:
                await caller.report(watch.state())
            next_report = caller.reported_at + caller.silence
            until = next_report if deadline is None else min(next_report, deadline)
            await asyncio.wait(ends, timeout=max(0.0, until - loop.time()), return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
            return None
        return running.result() if running.done() else None
    finally:
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)


class _Watch:
    """The delegations that one call waits for, and what they do at present."""

    def __init__(self, operations: Service, ids: Sequence[str], caller: Caller, beside: Interruption | None) -> None:
        self._beside = beside
        self._operations = operations
        self._caller = caller
        self._doing = dict.fromkeys(ids, "queued")
        self._finished = 0

    async def follow(self, id: str) -> None:
        following = follow_unless_paused(self._operations, id, refuse_paused)
        async with aclosing(following) as events:
            async for envelope in events:
                if self._beside and isinstance(envelope.event, NEWS):
                    self._beside.news.set()
                message = self._message(id, envelope.event)
                if message is not None:
                    await self._caller.report(self._of(id, message))
        self._finished += 1

    def state(self) -> str:
        if self._beside and self._beside.line:
            return clip(visible(self._beside.line), MAX_MESSAGE)
        if len(self._doing) == 1:
            return next(iter(self._doing.values()))
        return f"{self._finished} of {len(self._doing)} finished"

    def _message(self, id: str, event: AnyEvent) -> str | None:
        """Notes what the delegation does. Returns what is reported of it at once, if anything."""
        if isinstance(event, RunStarted):
            self._doing[id] = "running"
            return f"started by {event.worker} with {event.model}"
        if isinstance(event, Waiting | ResumedWaiting):
            self._doing[id] = f"waits for {event.why}" if isinstance(event, Waiting) else "running"
        if isinstance(event, RunResumed):
            return f"resumed by {event.worker} at turn {event.from_turn}: {event.reason}"
        if isinstance(event, RunRetried):
            self._doing[id] = "queued"
            return f"failed ({event.reason}), done again from the start: retry {event.retry} of {event.of}"
        if isinstance(event, ModelRetried):
            return f"turn {event.turn}: the model did not answer, next try in {event.delay_seconds:.0f} s"
        if isinstance(event, Heartbeat):
            facts = f"turn {event.turn}, {event.tool_calls} tool calls, {event.elapsed_ms / 1000:.0f} s"
            self._doing[id] = f"running: {facts}"
        if isinstance(event, PermissionAnswered):
            return f"permission {event.permission_id}: {answer_words(event.outcome, event.by, event.reason)}"
        if isinstance(event, StepStarted):
            self._doing[id] = f"turn {event.step.turn_index}: {event.step.title}"
        if isinstance(event, StepCompleted):
            sign = "✓" if event.step.status is StepStatus.COMPLETED else "✗"
            self._doing[id] = "running"
            return f"turn {event.step.turn_index}: {sign} {event.step.title}"
        return None

    def _of(self, id: str, message: str) -> str:
        text = message if len(self._doing) == 1 else f"{id}: {message}"
        return clip(visible(text), MAX_MESSAGE)


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
