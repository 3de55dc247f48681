"""One call of a tool: its client, what it may do, its result, and its wait for the ends of delegations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ...shared.errors import Conflict, NotFound, Refused, ScopeMissing
from ...shared.permission import PermissionReply, PermissionRequest
from ...shared.request import DelegationRequest
from ...shared.runs.permission_fields import delegation_of
from ...shared.text import clip, visible
from ...shared.wire import Wire
from ...shared.wording import line_of
from ..operations import Service, follow_unless_paused, refuse_paused
from ..run_states import RunStates

ANSWER = "answer_permission"
PROGRESS_SECONDS = 8.0
"""Maximum seconds between two progress notifications; clients end a call that is silent."""
MAX_MESSAGE = 200
NEWS = {"permission_requested", "permission_answered", "waiting", "resumed_waiting", "run_resumed"}
"""The events after which a permission request may have come or been answered."""
REPORTED = {
    *("run_started", "run_resumed", "run_retried", "model_retried", "permission_answered", "step_completed"),
    *("check_completed", "message_read", "wrap_up_requested"),
}
"""The events that are reported at once."""

Report = Callable[[float, float | None, str | None], Awaitable[None]]
Ask = Callable[[PermissionRequest], Awaitable[PermissionReply | None]]
"""Asks the user for permission during a call; None: the client did not pass on an answer."""


class Source(Protocol):
    """Returns operations on demand, so that a client that never delegates starts nothing."""

    @property
    def folder(self) -> Path | None:
        """The directory that relative workspace paths start from; None if there are only absolute ones."""

    @property
    def stays(self) -> bool:
        """Whether the service continues without this client."""
        ...

    async def service(self, requests: Sequence[DelegationRequest] = ()) -> Service:
        """Returns operations, of a service that executes the requests if there are any; else it may have no workers.

        Raises Misconfigured and Unavailable.
        """
        ...

    async def if_open(self) -> Service | None:
        """Returns operations if the service is in use already; never starts it."""


class Record(Protocol):
    """Puts what a call has done or was refused into the audit log, where this server keeps one."""

    async def __call__(self, ids: Sequence[str], status: int = 200, tool: str | None = None) -> None:
        """``ids``: the delegations that it concerns; ``tool``: where it is not the one that was called."""


@dataclass(frozen=True, slots=True)
class Round:
    """What a repeated call continues."""

    number: int
    ids: Sequence[str]
    """The delegations that the first call submitted."""
    replies: Mapping[str, PermissionReply]
    """The user's answers by request."""


@dataclass(slots=True)
class Call:
    """One call of a tool."""

    source: Source
    progress: Report
    """Sends a progress notification if the client asked for them."""
    record: Record
    waiting: Callable[[], AbstractContextManager[None]]
    """Returns the block of a call that waits. Raises Unavailable if too many do."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client cancels the call or disconnects."""
    by: str | None = None
    """The name of the token of its client, where this server knows it."""
    ask: Ask | None = None
    """None where its client cannot ask during the call, or may not pass on the answer."""
    returns_questions: bool = False
    """Whether its result may be the question; the client then repeats the call with the answer."""
    repeats: Round | None = None
    silence: float = PROGRESS_SECONDS
    reports: int = 0
    reported_at: float = 0.0

    async def report(self, message: str) -> None:
        """Reports progress; the number only counts the reports."""
        if self.gone.is_set():
            return
        self.reports += 1
        self.reported_at = asyncio.get_running_loop().time()
        await self.progress(self.reports, None, message)

    async def answer(self, operations: Service, id: str, reply: PermissionReply) -> None:
        """Answers a request and records who did. Raises NotFound, Invalid, and Conflict for a second answer."""
        asker = [delegation] if (delegation := delegation_of(id)) else []
        try:
            await operations.answer_permission(
                id, reply.outcome, reason=reply.reason, arguments=reply.arguments, by=self.by
            )
        except Refused as error:
            await self.record(asker, error.status, ANSWER)
            raise
        await self.record(asker, tool=ANSWER)


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


class Wait:
    """The wait of one call for the ends of some delegations.

    With ``returns`` the first permission request below them ends the wait. Otherwise the client's user is asked, or,
    where the client cannot ask, its progress notifications name the request and how to answer it.
    """

    def __init__(self, operations: Service, ids: Sequence[str], call: Call, *, returns: bool) -> None:
        self._operations = operations
        self._ids = ids
        self._call = call
        self._returns = returns
        self._ask = call.ask
        self._states = RunStates()
        self._passed: set[str] = set()
        """The requests that were asked, whatever the outcome: none is asked twice in one call."""
        self._news = asyncio.Event()
        """Set when a request may have come or been answered."""
        self._question = ""
        """What is reported while a request waits."""

    async def end(self, seconds: float | None = None) -> PermissionRequest | None:
        """Returns when all are finished, after ``seconds``, or when the client has gone; or the request that ends it.

        Raises Conflict where one is paused, and Unavailable.
        """
        following = asyncio.gather(*(self._follow(id) for id in self._ids))
        asking = asyncio.create_task(self._ask_for_permissions())
        others = [asyncio.create_task(self._call.gone.wait()), asyncio.create_task(self._report_states())]
        ends: list[asyncio.Future[Any]] = [following, asking, *others]
        try:
            done, _ = await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for end in done:
                end.result()
            return asking.result() if asking in done and following not in done else None
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    async def _follow(self, id: str) -> None:
        async with aclosing(follow_unless_paused(self._operations, id, refuse_paused)) as events:
            async for envelope in events:
                self._states.take(envelope)
                event = envelope.event
                if event.type in NEWS:
                    self._news.set()
                if event.type in REPORTED and (line := line_of(event, envelope.at)):
                    await self._report(line if len(self._ids) == 1 else f"{id}: {line}")

    async def _report_states(self) -> None:
        """Reports the state of the delegations wherever nothing was reported for long."""
        call, time = self._call, asyncio.get_running_loop().time
        call.reported_at = time()
        while True:
            await asyncio.sleep(max(0.0, call.reported_at + call.silence - time()))
            if time() >= call.reported_at + call.silence:
                await self._report(self._question or self._states.line() or "queued")

    async def _report(self, line: str) -> None:
        await self._call.report(clip(visible(line), MAX_MESSAGE))

    async def _ask_for_permissions(self) -> PermissionRequest:
        """Asks until it is cancelled; returns the first request with ``returns`` only."""
        while True:
            waiting = await self._waiting()
            self._question = _how_to_answer(waiting[0]) if waiting else ""
            request = next((each for each in waiting if each.permission_id not in self._passed), None)
            if request is None:
                await self._next()
            elif self._returns:
                return request
            else:
                self._passed.add(request.permission_id)
                if (reply := await self._asked(request)) is not None:
                    await self._answer(request, reply)
                elif await self._is_open(request):
                    await self._report(_how_to_answer(request))

    async def pass_on(self, replies: Mapping[str, PermissionReply]) -> None:
        """Answers the requests below these delegations; an answer to another one, or one too late, has no effect."""
        for request in await self._waiting():
            if request.permission_id in replies:
                await self._answer(request, replies[request.permission_id])

    async def _waiting(self) -> list[PermissionRequest]:
        self._news.clear()
        found = await self._operations.permissions(self._ids[0] if len(self._ids) == 1 else None)
        return [request for request in found if not set(self._ids).isdisjoint(request.path)]

    async def _is_open(self, request: PermissionRequest) -> bool:
        return any(each.permission_id == request.permission_id for each in await self._waiting())

    async def _next(self) -> None:
        """Waits for news; not for ever, because requests of delegations below may come without an event."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._call.silence):
                await self._news.wait()

    async def _answer(self, request: PermissionRequest, reply: PermissionReply) -> None:
        try:
            await self._call.answer(self._operations, request.permission_id, reply)
        except (Conflict, NotFound) as error:
            await self._call.report(f"the user's answer came too late: {error}")
        except Refused as error:
            self._ask = None if isinstance(error, ScopeMissing) else self._ask
            await self._call.report(f"{error}; {_how_to_answer(request)}")

    async def _asked(self, request: PermissionRequest) -> PermissionReply | None:
        """Returns the user's answer; withdraws the question when the request is answered elsewhere or expires."""
        if self._ask is None:
            return None
        asking = asyncio.ensure_future(self._ask(request))
        answered = asyncio.create_task(self._until_answered(request))
        try:
            await asyncio.wait({asking, answered}, return_when=asyncio.FIRST_COMPLETED)
            if answered.done():
                answered.result()
            return asking.result() if asking.done() else None
        finally:
            asking.cancel()
            answered.cancel()
            await asyncio.gather(asking, answered, return_exceptions=True)

    async def _until_answered(self, request: PermissionRequest) -> None:
        while await self._is_open(request):
            await self._next()


def _how_to_answer(request: PermissionRequest) -> str:
    id, title = request.permission_id, request.step.title
    return f"waits for permission {id} (answer_permission or `deputize approve`): {title}"
