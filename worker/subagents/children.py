"""Child delegations of a run: found again by later attempts, awaited, paid from its budget, and ended with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...shared.bus import RECHECK_SECONDS, Listener
from ...shared.connection import retried
from ...shared.delegation import Delegation, Usage
from ...shared.errors import ErrorType, Fenced, KeyReused, NotFound, Refused, ToolError, Unavailable
from ...shared.events import Envelope, PermissionAnswered, PermissionRequested, StepStarted
from ...shared.ids import new_id
from ...shared.limits import Limits
from ...shared.log import log
from ...shared.permission import PermissionAnswer
from ...shared.queue import Ticket
from ...shared.request import DelegationRequest
from ...shared.request_rules import check_sizes
from ...shared.runs.keys import channel, permissions_key
from ...shared.runs.permission_fields import answer_field, reported_mark, requested_mark
from ...shared.runs.permissions import pending
from ...shared.runs.store import call_key, children_of
from ..core.limits import LimitReached
from ..core.run_context import RunContext
from ..models.base import Call
from ..permission import report_of
from ..services import Services
from ..threads import run_in_thread
from ..tools.context import Outcome, ToolContext
from ..workspace.workspace import Workspace
from .inheritance import Inheritance

END_SECONDS = 2.0
"""How long a run that ends waits for its children to end, where it has the time."""


@dataclass(slots=True)
class ChildPermissions:
    """The permission events of all children of one run, each published once in the run's own stream.

    So who follows a run sees what any run below it asks. While a child waits for a person, the run's time is paused,
    too: it waits for the child.
    """

    run: RunContext
    redis: Any
    _published: set[str] = field(default_factory=set[str])
    """The marks of the events that this run has published."""
    _recalled: bool = False
    """Whether those of earlier attempts were read."""
    _open: dict[str, PermissionRequested] = field(default_factory=dict[str, PermissionRequested])
    _paused: ExitStack = field(default_factory=ExitStack)

    def hear(self, message: str) -> None:
        """Takes a message of a child's channel."""
        if '"permission_' in message and self._recalled:
            event = (envelope := Envelope.read(message)) and envelope.event
            if isinstance(event, PermissionRequested):
                self._request(event)
            elif isinstance(event, PermissionAnswered):
                self._report(event)

    async def catch_up(self, child: str) -> None:
        """Publishes what was not heard: messages may be lost, and this may be a later attempt."""
        if not self._recalled:
            self._published.update(await retried(partial(self.redis.hkeys, permissions_key(self.run.claim.id))))
            self._recalled = True
        for kept in await retried(partial(pending, self.redis, child)):
            fields = dict(kept.request)
            del fields["delegation_id"]
            self._request(PermissionRequested(**fields))
        for id, event in [*self._open.items()]:
            place = permissions_key(event.path[-1])
            if child in event.path and (text := await retried(partial(self.redis.hget, place, answer_field(id)))):
                self._report(report_of(event, PermissionAnswer.model_validate_json(text)))

    def close(self, child: str) -> None:
        """Forgets what a child that has ended was waiting for."""
        for id in [id for id, event in self._open.items() if child in event.path]:
            del self._open[id]
        self._resume_clock()

    def _request(self, event: PermissionRequested) -> None:
        id = event.permission_id
        if reported_mark(id) in self._published:
            return
        if requested_mark(id) not in self._published:
            self._publish(event, requested_mark(id))
        if not self._open:
            self._paused.enter_context(self.run.meter.paused())
        self._open[id] = event

    def _report(self, event: PermissionAnswered) -> None:
        id = event.permission_id
        if requested_mark(id) in self._published and reported_mark(id) not in self._published:
            self._publish(event, reported_mark(id))
        self._open.pop(id, None)
        self._resume_clock()

    def _publish(self, event: PermissionRequested | PermissionAnswered, mark: str) -> None:
        self._published.add(mark)
        self.run.emit.emit_marked(event, mark)

    def _resume_clock(self) -> None:
        if not self._open:
            self._paused.close()


class Children:
    """The child delegations of one run. None outlives it: however it ends, its children are ended first."""

    def __init__(self, run: RunContext, services: Services) -> None:
        self._run = run
        self._services = services
        self._store = services.store
        self._bus = services.leases.bus
        self.permissions = ChildPermissions(run, services.store.redis)
        self._recalled = run.claim.attempt == 1
        self.known: dict[str, str] = {}
        """The ids of all children ever created, by the keys of their calls."""

    async def recall(self) -> None:
        """Finds the children of earlier attempts, and books their usage with this attempt's meter."""
        if self._recalled:
            return
        found = await retried(partial(children_of, self._store, self._run.claim.id))
        self._recalled = True
        for key, child in found.items():
            self.known[key] = child.id
            if child.result:
                self._run.meter.book(child.id, child.result.usage)
            else:
                self._run.meter.lent[child.id] = child.effective_limits

    async def submit(self, id: str, request: DelegationRequest, limits: Limits, trace: str) -> None:
        """Accepts a child, whose limits are lent to it. Raises ``KeyReused``, ``Unavailable`` and ``Fenced``."""
        settings, fence = self._services.settings, self._run.claim.fence
        accept = partial(self._store.accept, [(id, request, limits)], settings.claim_seconds, fence)
        await retried(partial(accept, temporary=settings.temporary, trace=trace))

    async def send(self, id: str, title: str) -> None:
        """Sends the ticket of a child that may not have begun."""
        try:
            await run_in_thread(self._services.send, [Ticket(id, title, self._run.claim.request.priority)])
        except Unavailable as error:
            log.info("the janitor will send a ticket for %s: %s", id, error)

    async def wait(self, id: str, on_step: Callable[[str], None] | None = None) -> Delegation:
        """Returns the child when it has ended, however long Redis is unavailable. Raises ``NotFound``.

        With ``on_step``, which takes the title of each step that starts, its permission requests are published, too.
        """
        async with self._bus.listen(channel(id)) as listener:
            while not (child := await retried(partial(self._store.get, id))).status.finished:
                if on_step:
                    await self.permissions.catch_up(id)
                with suppress(TimeoutError):  # events may have been missed
                    async with asyncio.timeout(RECHECK_SECONDS):
                        await self._hear(listener, on_step)
        return child

    async def _hear(self, listener: Listener, on_step: Callable[[str], None] | None) -> None:
        """Returns when the child's end was announced, or messages were lost."""
        while (message := await listener.get()) is not None and '"run_finished"' not in message:
            if on_step is None:
                continue
            self.permissions.hear(message)
            if '"step_started"' in message and isinstance(event := Envelope.from_json(message).event, StepStarted):
                on_step(event.step.title)

    async def end(self) -> list[str]:
        """Cancels running children and waits END_SECONDS for their usage; returns the ids of those that take longer.

        Raises ``Fenced`` where another worker owns them by now.
        """
        await self.recall()
        lent = self._run.meter.lent
        if lent:
            await self._run.emit.check_fence()
        for id in list(lent):
            try:
                await retried(partial(self._store.cancel, id))
            except NotFound:
                self._run.meter.book(id, Usage())
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(END_SECONDS, self._run.meter.time_for_summary / 2))):
                for id in list(lent):
                    child = await self.wait(id)
                    self._run.meter.book(id, child.result.usage if child.result else Usage())
        return list(lent)


@dataclass(frozen=True, slots=True)
class SubagentRunner:
    """Creates child delegations for calls of one run, and waits for their results."""

    run: RunContext
    services: Services
    children: Children
    inheritance: Inheritance
    open_calls: Callable[[int], Sequence[Call]]
    """Returns the calls of the current turn."""
    trace_of: Callable[[str], str]
    """Returns the ``traceparent`` of what a step submits."""

    async def delegate(self, ctx: ToolContext, request: DelegationRequest, *, copy: bool) -> Outcome:
        """Runs the request as a child delegation and waits for its end; no slot is held meanwhile.

        ``copy``: the child works on a copy of this run's current files. The same call of the same turn finds the same
        child again, in any attempt. Raises ``ToolError`` for what the model can correct, and ``Fenced``.
        """
        key = call_key(self.run.claim.id, self.run.meter.turns, ctx.call_id)
        return await self.child(key, request, copy=copy, call=ctx)

    async def child(
        self, key: str, request: DelegationRequest, *, copy: bool, call: ToolContext | None = None
    ) -> Outcome:
        """Does the same for a child that belongs to no call of the model. ``key`` finds it again in any attempt."""
        if key not in self.children.known:
            await self._create(key, request, copy, self.trace_of(call.call_id if call else ""))
        id = self.children.known[key]
        if id in self.run.meter.lent:
            await self.children.send(id, request.title)
        if call:
            call.metadata(delegationId=id)
        on_step = call and (lambda title: call.metadata(delegationId=id, step=title))
        try:
            waits, is_slow = self.run.waits, self.inheritance.is_economy(request)
            with waits.without_clock("subagent") if is_slow else waits.without_slot("subagent"):
                result = (await self.children.wait(id, on_step)).result
            assert result is not None
            self.run.meter.book(id, result.usage)
            return Outcome(result, await retried(partial(self.services.store.patch, id)))
        except NotFound:
            self.run.meter.book(id, Usage())
            raise _record_removed() from None
        finally:
            self.children.permissions.close(id)

    async def _create(self, key: str, request: DelegationRequest, copy: bool, trace: str) -> None:
        """Reserves limits, prepares and creates the child. No await before the reservation keeps the shares right."""
        id, settings, known = new_id(), self.services.settings, self.children.known
        try:
            request = self.inheritance.request(request, key, copy=copy)
            check_sizes(request)
            limits = self.run.meter.lend(id, request.limits.capped(settings.caps), self._sharers())
            known[key] = id
            if copy:
                (await Workspace.create(request.workspace, id, settings.workspaces, attempt=0)).close()
            await self.children.submit(id, request, limits, trace)
        except KeyReused:
            self.run.meter.lent.pop(id, None)
            raise _record_removed() from None
        except (Refused, Unavailable, LimitReached, OSError) as error:
            known.pop(key, None)
            self.run.meter.lent.pop(id, None)
            kind = ErrorType.LIMIT_REACHED if isinstance(error, LimitReached) else ErrorType.EXECUTION_FAILED
            raise ToolError(kind, f"no subagent was started: {error}") from None
        except Fenced:
            await self.run.emit.check_fence()
            raise

    def _sharers(self) -> int:
        """Returns how many calls of this turn have no child yet, the current one included."""
        delegating = [tool for tool in self.inheritance.kit.values() if tool.delegates]
        names = {name for tool in delegating for name in (tool.name, *tool.aliases)}
        turn = self.run.meter.turns
        keys = [call_key(self.run.claim.id, turn, call.key) for call in self.open_calls(turn) if call.name in names]
        return max(1, sum(key not in self.children.known for key in keys))


def _record_removed() -> ToolError:
    """Returns the error for a child whose record is gone: it is not started a second time."""
    return ToolError(
        ErrorType.EXECUTION_FAILED,
        "the record of this subagent was removed, so its work is not known. Call it again if that matters",
    )
