"""The child delegations of a run: found again by later attempts, awaited, paid from its budget, and ended with it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ...shared.bus import RECHECK_SECONDS, Inbox
from ...shared.connection import retried
from ...shared.delegation import Delegation, Status, Usage
from ...shared.errors import NotFound
from ...shared.events import Envelope, StepStarted
from ...shared.runs.keys import channel
from ...shared.runs.store import children_of
from ..permission.requests import ChildPermissions
from ..run_context import RunContext
from ..services import Services
from ..tools.context import ToolContext

END_SECONDS = 2.0
"""How long a run that ends waits for its children to end, where it has the time."""


@dataclass(frozen=True, slots=True)
class ChildListener:
    """Publishes the starts of a child's steps as updates of its call, and its permission requests."""

    context: ToolContext
    id: str
    permissions: ChildPermissions

    def hear(self, message: str) -> None:
        """Takes a message of the child's channel."""
        self.permissions.hear(message)
        if '"step_started"' in message:
            event = Envelope.from_json(message).event
            if isinstance(event, StepStarted):
                self.context.metadata(delegationId=self.id, step=event.step.title)

    async def catch_up(self) -> None:
        """Publishes what was not heard."""
        await self.permissions.catch_up(self.id)


class Children:
    """The child delegations of one run. None outlives it: however it ends, its children are ended first."""

    def __init__(self, run: RunContext, services: Services) -> None:
        self._run = run
        self._store = services.store
        self._bus = services.leases.bus
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

    async def wait(self, id: str, listener: ChildListener | None = None) -> Delegation:
        """Returns the child when it has ended, however long Redis is unavailable. Raises ``NotFound``."""
        async with self._bus.listen(channel(id)) as inbox:
            while not (child := await retried(partial(self._store.get, id))).status.finished:
                if listener:
                    await listener.catch_up()
                await _end_or_recheck(inbox, listener)
        return child

    async def end(self) -> list[str]:
        """Cancels running children and waits END_SECONDS for their usage; returns the ids of those that take longer.

        Raises ``Fenced`` where another worker owns them by now.
        """
        await self.recall()
        lent = self._run.meter.lent
        if lent:
            await self.check_fence()
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

    async def check_fence(self) -> None:
        """Stops the run and raises ``Fenced`` where another worker owns it."""
        self._run.emit.set({"status": Status.RUNNING.value})
        await self._run.emit.settled()


async def _end_or_recheck(inbox: Inbox, listener: ChildListener | None) -> None:
    """Returns when the end was announced, when events may have been missed, or after some seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(RECHECK_SECONDS):
            while (message := await inbox.get()) is not None and '"run_finished"' not in message:
                if listener:
                    listener.hear(message)
