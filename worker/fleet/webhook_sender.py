"""Sends notifications to webhooks: any worker those that are due, each under a lease.

A try that was lost with its worker is repeated when its lease is over, so a notification arrives at least once, always
under the same id and with the same body. Of the answer only the status and Retry-After count; its body is not read.
Callers and hosts come in turn, and each has a bound, so that a slow receiver delays no other one.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx2

from ...shared.background import RepeatedCause
from ...shared.connection import REDIS_ERRORS, shielded
from ...shared.events import Envelope, PermissionRequested, RunFinished
from ...shared.fleet import own_version
from ...shared.log import log
from ...shared.runs.notification import Notification
from ...shared.runs.webhook_queue import DueNotification, settle, take
from ...shared.settings import Settings
from ...shared.text import clip, visible
from ...shared.webhooks import signatures
from ...shared.wire import now
from ...shared.wording import outcome
from ..models.retry import parse_retry_after
from ..web.dial import GuardedTransport, Network, read_trust_store

TICK_SECONDS = 0.5
TRY_SECONDS = 20.0
"""For a whole try, from the name's resolution to the status of the answer."""
DELAYS: Sequence[float] = (5, 60, 600, 3600, *(hours * 3600.0 for hours in (4, 10, 14, 20, 24)))
"""Seconds between the tries: ten in three days. Each is varied by a tenth, so that what failed together spreads."""
LONGEST_DELAY = 24 * 3600.0
"""Cap on a Retry-After."""
AT_ONCE = 100
"""Notifications that one worker sends concurrently."""
OF_HOST = 10
"""The same of one host: a slow one takes no turn of another."""
OF_CALLER = 50
"""The same of one token of the tokens file, which may name many slow hosts."""
MAX_ERROR = 300


class Answer(NamedTuple):
    """The outcome of a try: the HTTP status, if there was one, why it failed, if it did, and the Retry-After."""

    status: int | None = None
    error: str | None = None
    retry_after: float | None = None


def next_delay(tried: Notification, retry_after: float | None = None) -> float | None:
    """Returns the seconds until the try that follows a failed one; None after the last one."""
    if tried.tries > len(DELAYS):
        return None
    delay = DELAYS[tried.tries - 1] * random.uniform(0.9, 1.1)  # noqa: S311 - not for cryptography
    return max(delay, min(retry_after or 0.0, LONGEST_DELAY))


def body_of(due: DueNotification) -> bytes:
    """Returns the body: which delegation, how it stands, and where more is. It has no text that the run wrote.

    Raises ValueError for an event that this version cannot read.
    """
    id, envelope = due.notification.delegation_id, Envelope.from_json(due.event)
    path, event = f"/v1/delegations/{id}", envelope.event
    data: dict[str, Any] = {"id": id, "sessionId": due.session or None, "status": "waiting"}
    links = {"delegation": path, "events": f"{path}/events"}
    if isinstance(event, RunFinished):
        result = event.result
        data |= {"status": result.status, "terminationReason": result.termination_reason, "success": result.success}
        data |= {"mark": result.mark, "verdict": result.verification.verdict, "text": outcome(result)}
        data |= {"refutedClaimCount": len(result.refuted_claims), "deniedCallCount": result.denied_call_count}
        data["costUsd"] = result.usage.cost_usd
        links["patch"] = f"{path}/patch"
        if due.notification.type == "schedule.paused":
            data["text"], links["schedules"] = result.summary, "/v1/schedules"
    elif isinstance(event, PermissionRequested):
        data |= {"permissionId": event.permission_id, "tool": event.step.tool_name}
        data["expiresAt"] = event.expires_at.isoformat()
        links["permission"] = f"/v1/permissions/{event.permission_id}"
    body = {"type": due.notification.type, "timestamp": envelope.at.isoformat(), "data": data | {"links": links}}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(slots=True)
class WebhookSender:
    """One per worker process. ``network`` is that of the guarded dial."""

    settings: Settings
    redis: Any
    network: Network | None = None
    try_seconds: float = TRY_SECONDS
    sending: dict[asyncio.Task[None], DueNotification] = field(
        default_factory=dict["asyncio.Task[None]", DueNotification]
    )
    """What is under way."""

    async def send_forever(self) -> None:
        """Sends what becomes due. Without a secret nothing can be signed: that is for other workers."""
        trouble = RepeatedCause("this worker sends no notifications")
        try:
            while self.settings.webhook.secrets:
                await asyncio.sleep(TICK_SECONDS)
                try:
                    await shielded(self.start_due())
                    trouble.works()
                except REDIS_ERRORS as error:
                    trouble.failed(error)
        finally:
            for task in self.sending:
                task.cancel()
            await asyncio.gather(*self.sending, return_exceptions=True)

    async def start_due(self) -> int:
        """Leases what is due and begins to send it; returns how much."""
        found = await take(self.redis, AT_ONCE - len(self.sending), OF_HOST, OF_CALLER, self.sending.values())
        for due in found:
            task = asyncio.create_task(self._send(due), name=f"notify {due.notification.id}")
            self.sending[task] = due
            task.add_done_callback(self.sending.pop)
        return len(found)

    async def _send(self, due: DueNotification) -> None:
        status, error, retry_after = await self._try(due)
        gone = status == 410
        delay = None if error is None or gone else next_delay(due.notification, retry_after)
        state = "delivered" if error is None else "failed" if delay is None else "pending"
        update = {"state": state, "status": status, "error": error, "last_try_at": now()}
        tried = due.notification.model_copy(update=update)
        with suppress(*REDIS_ERRORS):  # it is sent again when its lease is over
            await settle(self.redis, tried, delay, gone=gone)
        if error is not None:
            log.warning("%s: try %d to notify %s failed: %s", tried.id, tried.tries, tried.url, error)

    async def _try(self, due: DueNotification) -> Answer:
        if not (keys := self.settings.webhook.keys(due.webhook.secret_name)):
            which = f"secret {due.webhook.secret_name}" if due.webhook.secret_name else "default secret"
            return Answer(error=f"DEPUTIZE_WEBHOOK_SECRETS of this worker has no {which}")
        await read_trust_store()
        transport = GuardedTransport(self.settings.webhook.hosts, network=self.network, keepalive=False)
        try:
            async with asyncio.timeout(self.try_seconds), transport:
                response = await transport.handle_async_request(signed_request(due, keys))
                await response.aclose()
        except TimeoutError:
            return Answer(error=f"no answer within {self.try_seconds:g} seconds")
        except (httpx2.HTTPError, OSError) as error:
            return Answer(error=clip(visible(f"{type(error).__name__}: {error}"), MAX_ERROR))
        except ValueError:
            return Answer(error="this worker's version cannot read the event")
        status, retry_after = response.status_code, None
        with suppress(ValueError, OverflowError):
            retry_after = parse_retry_after(response.headers)
        why = f"HTTP {status}" + (", and redirects are not followed" if 300 <= status < 400 else "")
        return Answer(status, None if 200 <= status < 300 else why, retry_after)


def signed_request(due: DueNotification, keys: Sequence[bytes]) -> httpx2.Request:
    id, timestamp, body = due.notification.id, int(time.time()), body_of(due)
    headers = {
        "content-type": "application/json",
        "user-agent": f"deputize/{own_version()}",
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signatures(keys, id, timestamp, body),
    }
    return httpx2.Request("POST", due.webhook.url, content=body, headers=headers)
