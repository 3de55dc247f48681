"""Notifications of the service that tests talk to."""

from __future__ import annotations

from typing import Any

from deputize.orchestrator.delegations import webhook_test
from deputize.shared.delegation import Delegation
from deputize.shared.errors import Conflict
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.notification import Notification
from deputize.shared.webhooks import NotificationType, Webhook
from deputize.shared.wire import now


class FakeWebhooks:
    """Its operations on notifications; ``first_try`` is what comes of a test."""

    notified: dict[str, list[Notification]]
    first_try: dict[str, Any]

    async def webhooks(self: Any, delegation: str | None = None) -> list[Notification]:
        if delegation:
            self._known(delegation)
            return self.notified.get(delegation, [])
        self.check()
        return [each for all in self.notified.values() for each in all if each.state != "delivered"]

    async def redeliver(self: Any, id: str) -> None:
        self._known(id)
        if id not in self.notified:
            raise Conflict(f"{id} has no notifications: it has no webhook")
        self.notified[id] = [each.model_copy(update={"state": "pending", "tries": 0}) for each in self.notified[id]]

    async def notify(self: Any, request: DelegationRequest, kind: NotificationType, text: str) -> None:
        made = (await self.create(request)).delegation
        sent = Notification(
            id=f"{made.id}-2", delegation_id=made.id, type=kind, url=request.webhook.url if request.webhook else ""
        )
        self.notified[made.id] = [sent]
        self.finish(made.id, summary=text)

    async def try_webhook(self: Any, webhook: Webhook) -> Delegation:
        made = (await self.create(webhook_test(webhook))).delegation
        sent = Notification(id=f"{made.id}-2", delegation_id=made.id, type="delegation.finished", url=webhook.url)
        self.notified[made.id] = [sent.model_copy(update={"last_try_at": now(), **self.first_try})]
        return await self.cancel(made.id)
