"""Notifications of webhooks: queued in the step that stores their event (``webhook_queue.py`` has them sent).

The body is made of the stored event, so that it is the same at every try.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ..events import Event, PermissionRequested, RunFinished
from ..webhooks import NotificationType, Requested, Webhook
from ..wire import Timestamp, Wire

NOTIFIED: Mapping[type[Event], Requested] = {
    RunFinished: "delegation.finished",
    PermissionRequested: "permission.requested",
}


class Notification(Wire):
    """A message to the webhook of a delegation about one event."""

    id: str
    """The header ``webhook-id``, the same at every try."""
    delegation_id: str
    """The delegation that it is about."""
    type: NotificationType
    """What happened."""
    url: str
    """Without its query."""
    state: Literal["pending", "delivered", "failed"] = "pending"
    """``pending`` until a try succeeds (any status 2xx) or the last one has failed."""
    tries: int = 0
    """Since it was queued, or since all of the delegation were last to be sent again."""
    status: int | None = None
    """The HTTP status of the last try; null where there was none."""
    error: str | None = None
    """Why the last try failed."""
    last_try_at: Timestamp | None = None
    """When it was last sent; null where it was not yet."""
    next_try_at: Timestamp | None = None
    """Null where none follows, or one is due."""


def queued(
    delegation: str, webhook: Webhook | None, seq: int, event: Event, kind: NotificationType | None = None
) -> list[tuple[str, str]]:
    """Returns the notification of an event, if its webhook is notified of it, for ``notify.lua``.

    With ``kind`` it is, as one of that kind.
    """
    if webhook is None or (kind is None and NOTIFIED.get(type(event)) not in webhook.events):
        return []
    url = webhook.url.partition("#")[0].partition("?")[0]
    new = Notification(id=f"{delegation}-{seq}", delegation_id=delegation, type=kind or NOTIFIED[type(event)], url=url)
    return [(str(seq), new.to_json())]
