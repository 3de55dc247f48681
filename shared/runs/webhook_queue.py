"""The queue of notifications in Redis: leased for each try, settled after it, and listed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from typing import Any, NamedTuple, get_args

from ..connection import Script
from ..errors import Conflict
from ..metrics import WEBHOOK_TRIES
from ..webhooks import NotificationType, Webhook
from ..wire import now
from .disk import RECORD_PARTS
from .keys import METRICS, record_key, webhooks_key, webhooks_queue
from .notification import Notification
from .record import not_found, published

QUEUE = Script("count", "webhooks")
QUEUE_OF = {kind: webhooks_queue(kind) for kind in get_args(NotificationType)}
QUEUES = [*dict.fromkeys(QUEUE_OF.values())]
"""Those of the kinds of this version."""
LEASE_SECONDS = 60.0
"""How long no other worker sends a notification: longer than a try takes."""
LOOKED_AT = 1000
"""How many due notifications are looked at for those that may be sent."""
PAUSE_SECONDS = 1.0
"""How long those wait where so many are due, whose hosts or callers have enough under way.

It is about the time between two takes: what waits longer keeps a receiver idle that is free again."""
MAX_LISTED = 1000


class DueNotification(NamedTuple):
    """A notification that is leased for one try, which is in its ``tries``, and what its body is made of."""

    notification: Notification
    webhook: Webhook
    session: str
    event: str
    host: str
    caller: str
    """The name of the token that its delegation was submitted with; "" for all others."""


async def take(
    redis: Any,
    at_most: int,
    of_host: int,
    of_caller: int,
    sending: Collection[DueNotification] = (),
    looked_at: int = LOOKED_AT,
) -> list[DueNotification]:
    """Leases what is due now, callers and hosts in turn.

    ``of_host`` and ``of_caller``: how many one of them may have under way; ``sending`` are under way.
    """
    limits = {"at_most": at_most, "of_host": of_host, "of_caller": of_caller, "looked_at": looked_at}
    times = {"pause_ms": int(PAUSE_SECONDS * 1000), "lease_ms": int(LEASE_SECONDS * 1000)}
    busy, busy_callers = Counter(due.host for due in sending), Counter(due.caller for due in sending)
    found = await _run(redis, "take", **limits, **times, busy=busy, busy_callers=busy_callers)
    read, webhook_of = Notification.model_validate_json, Webhook.model_validate_json
    return [
        DueNotification(read(notification), webhook_of(webhook), session or "", published(event), host, caller)
        for notification, webhook, session, event, host, caller in found
    ]


async def settle(redis: Any, outcome: Notification, delay: float | None = None, *, gone: bool = False) -> None:
    """Stores how a try ended, unless it failed and another one has begun since; ``delay``: until the next one.

    ``gone``: the receiver wants no notification of this delegation any more.
    """
    next_try = None if delay is None else now() + timedelta(seconds=delay)
    wait = {} if delay is None else {"delay_ms": int(delay * 1000)}
    tried = outcome.model_copy(update={"next_try_at": next_try}).to_json()
    counts = {WEBHOOK_TRIES.field("retried" if outcome.state == "pending" else outcome.state): 1}
    await _run(redis, "settle", notification=tried, gone=gone, metrics=METRICS, counts=counts, **wait)


async def redeliver(redis: Any, id: str) -> None:
    """Makes all notifications of a delegation due again, under the same ids.

    Raises NotFound, and Conflict where there are none.
    """
    await _check(redis, id)
    if not await _run(redis, "again", delegation=id):
        raise Conflict(f"{id} has no notifications: it has no webhook, or nothing happened that this is notified of")


async def notifications(redis: Any, delegation: str | None = None) -> list[Notification]:
    """Returns all notifications of a delegation, or of any the first 1,000 due ones that were not delivered.

    Raises NotFound.
    """
    if delegation is None:
        ids: list[str] = [id for queue in QUEUES for id in await redis.zrange(queue, 0, MAX_LISTED - 1)][:MAX_LISTED]
    else:
        await _check(redis, delegation)
        numbers = [int(name) for name in await redis.hkeys(webhooks_key(delegation)) if name.isdigit()]
        ids = [f"{delegation}-{number}" for number in sorted(numbers)]
    async with redis.pipeline(transaction=False) as pipeline:
        for id in ids:
            pipeline.hget(webhooks_key(id.rpartition("-")[0]), id.rpartition("-")[2])
        found = [json.loads(text) for text in await pipeline.execute() if text]
    return [Notification.model_validate(each) for each in found if each["type"] in QUEUE_OF]


async def _check(redis: Any, id: str) -> None:
    if not await redis.exists(record_key(id)):
        raise not_found(id)


async def _run(redis: Any, operation: str, **arguments: Any) -> Any:
    return await QUEUE.run(redis, QUEUES, {"operation": operation, "queue_of": QUEUE_OF, **RECORD_PARTS, **arguments})
