"""Ended delegations whose webhooks are to be notified, and what notifies them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deputize.shared.connection import Pipe
from deputize.shared.runs.keys import WEBHOOKS
from deputize.shared.runs.notification import Notification
from deputize.shared.runs.store import RunStore
from deputize.shared.runs.webhook_queue import notifications
from deputize.shared.settings import Settings
from deputize.worker.fleet.webhook_sender import WebhookSender
from deputize.worker.web.dial import Network
from tests.contracts.store.records import claimed, ending, write
from tests.runs.receiving import SECRET


class Hooks:
    """Ended delegations with webhooks, and workers that notify these."""

    def __init__(self, store: RunStore, pipe: Pipe) -> None:
        self.store = store
        self._pipe = pipe

    async def ended(self, url: str, caller: str = "", **webhook: Any) -> str:
        claim = await claimed(self.store, owner=caller, webhook={"url": url} | webhook)
        assert await write(self._pipe, claim, ending(claim, 2))
        return claim.id

    def sender(
        self,
        hosts: Sequence[str] = (),
        network: Network | None = None,
        *,
        try_seconds: float = 60,
        secrets: Sequence[str] = (SECRET,),
    ) -> WebhookSender:
        settings = Settings.load(environ={}, webhook={"secrets": [*secrets], "hosts": [*hosts]})
        return WebhookSender(settings, self.store.redis, network=network, try_seconds=try_seconds)

    async def delivered(self) -> bool:
        return await self.store.redis.zcard(WEBHOOKS) == 0

    async def one(self, id: str) -> Notification:
        (found,) = await notifications(self.store.redis, id)
        return found
