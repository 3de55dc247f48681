"""Progress in Flower: a running delegation's current step as Celery events, at most one per second each."""

from __future__ import annotations

import asyncio

from celery import Celery
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from ...shared.log import log

SECONDS = 1.0


class ProgressEvents:
    """Collects the latest progress message of every run and sends it from a thread, because Celery's events block."""

    def __init__(self, app: Celery, hostname: str) -> None:
        self._app = app
        self._hostname = hostname
        self._latest: dict[str, str] = {}

    def update(self, id: str, text: str) -> None:
        self._latest[id] = text

    def drop(self, id: str) -> None:
        """Drops a run that ends, so that an older message does not overwrite its final state in Flower."""
        self._latest.pop(id, None)

    async def send_forever(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            news, self._latest = self._latest, {}
            if news:
                await asyncio.to_thread(self._send, news)

    def _send(self, news: dict[str, str]) -> None:
        try:
            with self._app.events.default_dispatcher(hostname=self._hostname) as dispatcher:
                for id, text in news.items():
                    dispatcher.send("task-progress", uuid=id, result=text)
        except (KombuError, RedisError, OSError) as error:  # monitoring is lossy and must never disturb a run
            log.debug("no progress for Flower: %s", error)
