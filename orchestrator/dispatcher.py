"""The sender of tickets: it hands accepted delegations to Celery's queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from ..shared.errors import Unavailable
from ..shared.log import log
from ..shared.queue import Ticket, create_app, send_tickets
from ..shared.settings import Settings


class Dispatcher:
    """Sends tickets from one thread, because Celery's producer blocks."""

    def __init__(self, settings: Settings, redis_url: str) -> None:
        self._app = create_app(settings, redis_url)
        self._thread = ThreadPoolExecutor(1, "dispatch")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._app.close()

    async def send(self, tickets: Sequence[Ticket]) -> None:
        """Sends the tickets. A failure is only logged: the records exist, and a janitor sends the tickets again."""
        if not tickets:
            return  # a repeated request does not wait behind others
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, send_tickets, self._app, tickets)
        except Unavailable as error:
            log.warning("%d tickets wait for a janitor", len(tickets), extra={"cause": str(error)})
