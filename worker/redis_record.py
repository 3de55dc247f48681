"""The record of runs in Redis: each update is one call of ``record.lua``, which checks the fence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from ..shared.connection import Pipe, ScriptCall
from ..shared.metrics import spent_fields
from ..shared.runs.keys import EVENTS, INDEX, LEASES, METRICS, PENDING, WEBHOOKS, channel, keys_of
from ..shared.runs.record import SPENT
from ..shared.runs.store import RECORD
from .core.emit import RunUpdate


@dataclass(frozen=True, slots=True)
class RedisRecord:
    """Writes the updates of all runs of a process through one pipe."""

    pipe: Pipe

    def write(self, id: str, fence: str, update: Callable[[], RunUpdate]) -> asyncio.Future[Any]:
        made: list[RunUpdate] = []
        return self.pipe.deferred(RECORD, partial(_sent, update, id, fence, made), lasts=lambda: made[0].begins)

    def publish(self, id: str, frame: str) -> None:
        self.pipe.publish(channel(id), frame)

    def flush(self) -> None:
        self.pipe.flush()


def _sent(update: Callable[[], RunUpdate], id: str, fence: str, made: list[RunUpdate]) -> ScriptCall:
    made.append(update())
    return script_call(made[0], id, fence)


def script_call(update: RunUpdate, id: str, fence: str) -> ScriptCall:
    """Returns keys, named arguments and values for the record script."""
    arguments: dict[str, Any] = {
        "id": id,
        "index": INDEX,
        "fence": fence,
        "number": update.number,
        "channel": EVENTS,
        "retention_seconds": update.retention,
        "events": len(update.events),
        "history": len(update.history),
        "ledger": len(update.ledger),
        "fields": len(update.fields),
        "artifacts": len(update.artifacts),
        "permissions": len(update.permissions),
        "path": update.path,
        "metrics": METRICS,
        "counts": update.counts,
        "webhooks": WEBHOOKS,
        "notifications": update.notifications,
    }
    if SPENT in update.fields:
        arguments["spent"] = spent_fields(update.model)
    if update.retry_ms is not None:
        arguments["retry_ms"] = update.retry_ms
    pairs = chain(update.ledger.items(), update.fields.items(), update.artifacts.items(), update.permissions.items())
    events = ((seq, event, update.stored.get(seq, "")) for seq, event in update.events)
    values = [*chain.from_iterable(events), *update.history, *chain.from_iterable(pairs)]
    return [LEASES, PENDING, *keys_of(id)], arguments, values
