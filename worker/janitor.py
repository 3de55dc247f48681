"""The janitor: finds delegations whose worker fell silent or that nobody took, and sends another ticket for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from shared.connection import AWAY
from shared.errors import Unavailable
from shared.log import log
from shared.queue import Ticket
from shared.runs import RunStore

TICK_SECONDS = 0.5


class Janitor:
    """One in every worker process; each sees what any worker left behind."""

    def __init__(self, store: RunStore, send: Callable[[Sequence[Ticket]], None], claim_seconds: float) -> None:
        self._store = store
        self._send = send
        self._claim_seconds = claim_seconds

    async def sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                await self.sweep()
            except (*AWAY, Unavailable) as error:
                log.debug("janitor waits for redis: %s", error)

    async def sweep(self) -> int:
        """One round; gives the number of tickets sent."""
        found = await self._store.reap(self._claim_seconds)
        for one in found:
            log.warning("%s is %s after %d attempts: another ticket", one.id, one.kind, one.attempt)
        if found:
            await asyncio.to_thread(self._send, [Ticket(one.id, one.title, one.priority) for one in found])
        return len(found)
