"""Child delegations: created by a run, awaited, and paid from its budget.

A child never has more rights than its parent: tools of its kit, limits within the parent's remaining ones, its
approval mode. And it never outlives its parent: however the parent ends, its children are ended first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from shared.background import Backoff
from shared.bus import RECHECK_SECONDS, Inbox
from shared.connection import REDIS_ERRORS, shielded
from shared.delegation import (
    Delegation,
    DelegationRequest,
    DirectoryWorkspace,
    EmptyWorkspace,
    Status,
    Usage,
)
from shared.errors import ErrorType, Fenced, KeyReused, NotFound, Refused, ToolError, Unavailable
from shared.events import Envelope, StepStarted
from shared.ids import new_id
from shared.log import log
from shared.queue import Ticket
from shared.request_checks import check_sizes
from shared.runs.children import call_key, handed_over
from shared.runs.keys import channel
from shared.runs.record import Claim
from worker.emit import Emitter
from worker.limits import LimitReached, Meter
from worker.models.base import Call
from worker.services import Services
from worker.subagents.waiting import Waiting
from worker.threads import run_in_thread
from worker.tools.base import AnyTool
from worker.tools.context import Outcome, ToolContext
from worker.workspace.workspace import Workspace

END_SECONDS = 2.0
"""How long a run that ends waits for its children to end, where it has the time."""

T = TypeVar("T")
Hear = Callable[[str], None]


class Children:
    """The children of one run."""

    def __init__(self, claim: Claim, services: Services, emit: Emitter, waiting: Waiting) -> None:
        self._claim = claim
        self._services = services
        self._store = services.store
        self._emit = emit
        self._waiting = waiting
        self._known: dict[str, str] = {}
        """The ids of all children ever started, by the keys of their calls."""
        self._meter: Meter | None = None
        self._kit: Mapping[str, AnyTool] = {}
        self._folder = Path()
        self._unanswered: Callable[[], Sequence[Call]] = tuple

    @property
    def depth_left(self) -> int:
        """Returns how many levels of nesting are allowed below this run."""
        return self._services.settings.tools.max_depth - self._claim.depth

    async def recall(self, meter: Meter) -> None:
        """Finds the children of earlier attempts, and books their usage with this attempt's meter."""
        self._meter = meter
        if self._claim.attempt == 1:
            return
        found = await _asked(partial(handed_over, self._store, self._claim.id))
        for key, child in found.items():
            self._known[key] = child.id
            if child.result:
                meter.book(child.id, child.result.usage)
            else:
                meter.lent[child.id] = child.effective_limits

    def equip(self, kit: Mapping[str, AnyTool], folder: Path, unanswered: Callable[[], Sequence[Call]]) -> None:
        """Sets what children may get: tools of the kit, files in ``folder``; ``unanswered`` returns the open calls."""
        self._kit, self._folder, self._unanswered = kit, folder, unanswered

    async def delegate(self, ctx: ToolContext, request: DelegationRequest, *, copy: bool) -> Outcome:
        """Runs the request as a child delegation and waits for its end; no slot is held meanwhile.

        ``copy``: the child works on a copy of this run's current files. The same call of the same turn finds the same
        child again, in any attempt. Raises ``ToolError`` for what the model can correct, and ``Fenced``.
        """
        assert self._meter is not None
        key = call_key(self._claim.id, self._meter.turns, ctx.call_id)
        if key not in self._known:
            await self._hand_over(key, request, copy)
        id = self._known[key]
        if id in self._meter.lent:
            await self._send(Ticket(id, request.title, self._claim.request.priority))
        ctx.metadata(delegationId=id)
        try:
            with self._waiting.begun():
                result = (await self._ended(id, partial(_tell, ctx, id))).result
            assert result is not None
            self._meter.book(id, result.usage)
            return Outcome(result, await _asked(partial(self._store.patch, id)))
        except NotFound:
            self._meter.book(id, Usage())
            raise _forgotten() from None

    async def end(self, meter: Meter) -> list[str]:
        """Cancels running children and waits END_SECONDS for their usage; returns the ids of those that take longer.

        Raises ``Fenced`` where another worker owns them by now.
        """
        if self._meter is None:
            await self.recall(meter)
        if meter.lent:
            await self._check_fence()
        for id in list(meter.lent):
            try:
                await _asked(partial(self._store.cancel, id))
            except NotFound:
                meter.book(id, Usage())
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(END_SECONDS, meter.time_for_summary / 2))):
                for id in list(meter.lent):
                    child = await self._ended(id)
                    meter.book(id, child.result.usage if child.result else Usage())
        return list(meter.lent)

    async def _hand_over(self, key: str, given: DelegationRequest, copy: bool) -> None:
        """Reserves limits, prepares and creates the child. No await before the reservation keeps the shares right."""
        assert self._meter is not None
        id, settings = new_id(), self._services.settings
        try:
            request = self._inheriting(given, key, copy)
            check_sizes(request)
            limits = self._meter.lend(id, request.limits.capped(settings.caps), self._sharers())
            self._known[key] = id
            if copy:
                (await Workspace.create(request.workspace, id, settings.workspaces)).close()
            new = [(id, request, limits)]
            await _asked(partial(self._store.accept, new, settings.claim_seconds, self._claim.fence))
        except KeyReused:
            self._meter.lent.pop(id, None)
            raise _forgotten() from None
        except (Refused, Unavailable, LimitReached, OSError) as error:
            self._known.pop(key, None)
            self._meter.lent.pop(id, None)
            kind = ErrorType.LIMIT_REACHED if isinstance(error, LimitReached) else ErrorType.EXECUTION_FAILED
            raise ToolError(kind, f"no subagent was started: {error}") from None
        except Fenced:
            await self._check_fence()
            raise

    async def _check_fence(self) -> None:
        """Stops the run and raises ``Fenced`` where another worker owns it."""
        self._emit.set({"status": Status.RUNNING.value})
        await self._emit.settled()

    def _inheriting(self, given: DelegationRequest, key: str, copy: bool) -> DelegationRequest:
        mine = self._claim.request
        here = DirectoryWorkspace(kind="directory", path=str(self._folder))
        inherited = {
            "session_id": mine.session_id,
            "message_id": mine.message_id,
            "approval_mode": mine.approval_mode,
            "model": mine.model,
            "tool_call_style": mine.tool_call_style,
            "priority": mine.priority,
            "labels": mine.labels | given.labels,
            "parent_id": self._claim.id,
            "idempotency_key": key,
            "tools": self._chosen(given.tools),
            "workspace": here if copy else EmptyWorkspace(),
        }
        return given.model_copy(update=inherited)

    def _chosen(self, asked: Sequence[str] | None) -> list[str]:
        """Returns the names of the child's tools; without an explicit request, a child cannot have children."""
        if asked is None:
            return [name for name, tool in self._kit.items() if not tool.by_name_only]
        return list(dict.fromkeys(self._chosen_tool(name).name for name in asked))

    def _chosen_tool(self, name: str) -> AnyTool:
        tool = next((tool for tool in self._kit.values() if name in (tool.name, *tool.aliases)), None)
        if tool is None:
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS,
                f"tools: {name[:100]!r} is not a tool of this run, so a subagent cannot have it. "
                f"There are {', '.join(self._kit)}.",
            )
        if tool.step_type == "delegate" and self.depth_left < 2:
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS,
                f"tools: a subagent of this run cannot have {tool.name}: delegations are nested "
                f"{self._services.settings.tools.max_depth} deep at most. Leave it out.",
            )
        return tool

    def _sharers(self) -> int:
        """Returns how many calls of this turn have no child yet, the current one included."""
        assert self._meter is not None
        names = {n for tool in self._kit.values() if tool.step_type == "delegate" for n in (tool.name, *tool.aliases)}
        keys = [call_key(self._claim.id, self._meter.turns, c.key) for c in self._unanswered() if c.name in names]
        return max(1, sum(key not in self._known for key in keys))

    async def _send(self, ticket: Ticket) -> None:
        try:
            await run_in_thread(self._services.send, [ticket])
        except Unavailable as error:
            log.info("the janitor will send a ticket for %s: %s", ticket.id, error)

    async def _ended(self, id: str, hear: Hear = lambda message: None) -> Delegation:
        """Returns the child when it has ended, however long Redis is unavailable. Raises ``NotFound``."""
        async with self._services.leases.bus.listen(channel(id)) as inbox:
            while not (child := await _asked(partial(self._store.get, id))).status.finished:
                await _news(inbox, hear)
        return child


def _forgotten() -> ToolError:
    """Returns the error for a child whose record is gone: it is not started a second time."""
    return ToolError(
        ErrorType.EXECUTION_FAILED,
        "the record of this subagent was removed, so what it did is not known. Call it again if that matters",
    )


async def _news(inbox: Inbox, hear: Hear) -> None:
    """Returns when the end was announced, when events may have been missed, or after some seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(RECHECK_SECONDS):
            while (message := await inbox.get()) is not None and '"run_finished"' not in message:
                hear(message)


def _tell(ctx: ToolContext, id: str, message: str) -> None:
    """Publishes the child's progress as an update of its call."""
    if '"step_started"' in message:
        event = Envelope.from_json(message).event
        if isinstance(event, StepStarted):
            ctx.metadata(delegationId=id, step=event.step.title)


async def _asked(ask: Callable[[], Awaitable[T]]) -> T:
    """Returns the store's reply, however long Redis is unavailable. A cancellation waits for a pending request."""
    backoff = Backoff()
    while True:
        try:
            return await shielded(ask())
        except REDIS_ERRORS:
            await backoff.wait()
