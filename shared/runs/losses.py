"""What failovers of Redis have lost that replicas had acknowledged (``shared/runs/replicas.py``)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from ..wire import Timestamp, Wire
from .keys import ACKNOWLEDGED

LOST, GONE = "lost:", "gone:"
"""What is before a history that has lost writes: when and how many, and how many accepted delegations are gone."""


class StoreLoss(Wire):
    """A failover of Redis that lost writes which its replicas had acknowledged."""

    at: Timestamp | None = None
    """When a process found it; null where an older version did."""
    writes: int = 0
    """Lost writes that had waited for replicas, as far as that process knows."""
    doubted: int = 0
    """Unfinished delegations that are in doubt since then: their next calls with an effect were not executed."""
    delegations: int = 0
    """Accepted delegations that are gone. The service's log names them."""


async def losses_of(redis: Any) -> list[StoreLoss]:
    """Returns all losses, the latest first."""
    fields: dict[str, str] = await redis.hgetall(ACKNOWLEDGED)
    found = [
        _loss(text, int(fields.get(GONE + name.removeprefix(LOST), 0)))
        for name, text in fields.items()
        if name.startswith(LOST)
    ]
    return sorted(found, key=lambda loss: loss.at or datetime.fromtimestamp(0, UTC), reverse=True)


def _loss(text: str, gone: int) -> StoreLoss:
    if not text.startswith("{"):
        return StoreLoss(delegations=gone)
    found = json.loads(text)
    at = datetime.fromtimestamp(found["at"], UTC)
    return StoreLoss(at=at, writes=found["writes"], doubted=found["doubted"], delegations=gone)
