"""The end of a delegation that no worker has begun: its last events and its result, for the scripts that end it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..delegation import ToolAgentResult
from ..event_size import capped
from ..events import Envelope, Event, RunFinished
from ..message import Message
from ..metrics import counted
from ..webhooks import NotificationType, Webhook
from ..wire import now
from .keys import EVENTS, INDEX, METRICS, WAITING_RUNS, WEBHOOKS, keys_of, record_key, webhooks_queue
from .notification import queued
from .record import READ, WEBHOOK, not_found


async def state_of(redis: Any, id: str) -> Mapping[str, str]:
    """Returns what the scripts must still find when they end a delegation. Raises ``NotFound``."""
    names = ["seq", "attempt", "request", READ, WEBHOOK]
    values = await redis.hmget(record_key(id), names)
    if values[0] is None:
        raise not_found(id)
    return dict(zip(names, (value or "" for value in values), strict=True))


def ending(
    id: str,
    state: Mapping[str, str],
    ended: Mapping[str, Any],
    *,
    retention: int,
    undelivered: Sequence[Message] = (),
    before: Sequence[Event] = (),
    kind: NotificationType | None = None,
) -> dict[str, Any]:
    """Returns the arguments of ``end_unstarted`` (``unstarted.lua``).

    ``ended`` are fields of the result; the events ``before`` precede the last one. With ``kind`` the webhook is
    notified of that, and not of the end.
    """
    output = "missing" if _asks_for_output(state["request"]) else None
    unread, attempts = [message for message in undelivered if message.text], int(state["attempt"])
    result = ToolAgentResult(**ended, delegation_id=id, attempts=attempts, output_status=output, undelivered=unread)
    finished, webhook = RunFinished(result=result), _webhook(state[WEBHOOK])
    number = int(state["seq"]) + len(before) + 1
    return {
        "id": id,
        "keys": keys_of(id),
        "index": INDEX,
        "channel": EVENTS,
        "seq": int(state["seq"]),
        "events": numbered(id, state, [*before, finished]),
        "status": result.status,
        "result": result.to_json(),
        "now": now().isoformat(),
        "retention_seconds": retention,
        "metrics": METRICS,
        "counts": counted(finished),
        "queue": WAITING_RUNS,
        "webhooks": webhooks_queue(kind) if kind else WEBHOOKS,
        "notifications": queued(id, webhook, number, finished, kind),
    }


def _asks_for_output(request: str) -> bool:
    """Returns whether a stored request has a schema; False for another form, with which it is to end, too."""
    try:
        return json.loads(request).get("outputSchema") is not None
    except (ValueError, AttributeError):
        return False


def _webhook(text: str) -> Webhook | None:
    """Returns the webhook; None for one that only a newer version can read, so that its delegation can end."""
    try:
        return Webhook.model_validate_json(text) if text else None
    except ValueError:
        return None


def numbered(id: str, state: Mapping[str, str], events: Sequence[Event]) -> list[str]:
    """Returns the next events of a delegation that no worker has, as they are published."""
    seq, attempt = int(state["seq"]), int(state["attempt"])
    envelopes = [
        Envelope.model_construct(delegation_id=id, seq=seq + at, at=now(), attempt=attempt, event=event)
        for at, event in enumerate(events, 1)
    ]
    return [capped(envelope.to_json()) for envelope in envelopes]
