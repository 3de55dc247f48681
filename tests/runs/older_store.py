"""A record as the version before the queue of runs wrote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.store import RunStore


class OlderStore(RunStore):
    """Puts nothing into the queue, so only a ticket that names a run starts it."""

    async def _accepted(
        self, keys: Sequence[str], arguments: Mapping[str, Any], records: Sequence[str], *, unbounded: bool
    ) -> list[Any]:
        return await super()._accepted(keys, {**arguments, "starts": False}, records, unbounded=unbounded)


async def accept_unqueued(store: RunStore, request: DelegationRequest) -> str:
    older = OlderStore(store.redis, store.retention)
    return (await older.accept([(new_id(), request, request.limits)], 30))[0].id
