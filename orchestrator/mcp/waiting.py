"""Waits for delegations on behalf of a client: reports their steps, asks its user, and notices that it has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from ...shared.errors import Conflict, NotFound, Refused, ScopeMissing
from ...shared.lines import line_of
from ...shared.permission import PermissionReply, PermissionRequest
from ...shared.text import clip, visible
from ..run_states import RunStates
from ..service import Service, follow_unless_paused, refuse_paused
from .call import Ask, Call
from .permissions import answer

MAX_MESSAGE = 200
NEWS = {"permission_requested", "permission_answered", "waiting", "resumed_waiting", "run_resumed"}
"""The events after which a permission request may have come or been answered."""
REPORTED = {"run_started", "run_resumed", "run_retried", "model_retried", "permission_answered", "step_completed"}
"""The events that are reported at once."""


class Wait:
    """The wait of one call for the ends of some delegations.

    With ``returns`` the first permission request below them ends the wait. Otherwise the client's user is asked, or,
    where the client cannot ask, its progress notifications name the request and how to answer it.
    """

    def __init__(self, operations: Service, ids: Sequence[str], call: Call, *, returns: bool) -> None:
        self._operations = operations
        self._ids = ids
        self._call = call
        self._caller = call.caller
        self._returns = returns
        self._ask = call.elicitation.ask if call.elicitation else None
        self._states = RunStates()
        self._passed: set[str] = set()
        """The requests that were asked, whatever came of it: none is asked twice in one call."""
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
        others = [asyncio.create_task(self._caller.gone.wait()), asyncio.create_task(self._report_states())]
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
        following = follow_unless_paused(self._operations, id, refuse_paused)
        async with aclosing(following) as events:
            async for envelope in events:
                self._states.take(envelope)
                event = envelope.event
                if event.type in NEWS:
                    self._news.set()
                if event.type in REPORTED and (line := line_of(event, envelope.at)):
                    await self._report(line if len(self._ids) == 1 else f"{id}: {line}")

    async def _report_states(self) -> None:
        """Reports the state of the delegations wherever nothing was reported for long."""
        time = asyncio.get_running_loop().time
        self._caller.reported_at = time()
        while True:
            await asyncio.sleep(max(0.0, self._caller.reported_at + self._caller.silence - time()))
            if time() >= self._caller.reported_at + self._caller.silence:
                await self._report(self._question or self._states.line() or "queued")

    async def _report(self, line: str) -> None:
        await self._caller.report(clip(visible(line), MAX_MESSAGE))

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
                await self._put(request)

    async def pass_on(self, replies: Mapping[str, PermissionReply]) -> None:
        """Answers the requests below these delegations; an answer to another one, or one too late, has no effect."""
        waiting = await self._waiting()
        for request in (each for each in waiting if each.permission_id in replies):
            await self._answer(request, replies[request.permission_id])

    async def _waiting(self) -> list[PermissionRequest]:
        self._news.clear()
        found = await self._operations.permissions(self._ids[0] if len(self._ids) == 1 else None)
        return [request for request in found if not set(self._ids).isdisjoint(request.path)]

    async def _next(self) -> None:
        """Waits for news; not for ever, because requests of delegations below may come without an event."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._caller.silence):
                await self._news.wait()

    async def _put(self, request: PermissionRequest) -> None:
        reply = await self._asked(self._ask, request) if self._ask else None
        if reply is None:
            if _is_in(await self._waiting(), request):
                await self._report(_how_to_answer(request))
            return
        await self._answer(request, reply)

    async def _answer(self, request: PermissionRequest, reply: PermissionReply) -> None:
        try:
            await answer(self._call, self._operations, request.permission_id, reply)
        except (Conflict, NotFound) as error:
            await self._caller.report(f"the user's answer came too late: {error}")
        except Refused as error:
            self._ask = None if isinstance(error, ScopeMissing) else self._ask
            await self._caller.report(f"{error}; {_how_to_answer(request)}")

    async def _asked(self, ask: Ask, request: PermissionRequest) -> PermissionReply | None:
        """Returns the user's answer; withdraws the question when the request is answered elsewhere or expires."""
        asking = asyncio.ensure_future(ask(request))
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
        while _is_in(await self._waiting(), request):
            await self._next()


def _is_in(waiting: Sequence[PermissionRequest], request: PermissionRequest) -> bool:
    return any(each.permission_id == request.permission_id for each in waiting)


def _how_to_answer(request: PermissionRequest) -> str:
    id, title = request.permission_id, request.step.title
    return f"waits for permission {id} (answer_permission or `deputize approve`): {title}"
