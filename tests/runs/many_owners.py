"""Runs of many owners that wait for places in workers, and the order in which a store starts them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from deputize.shared.connection import Pipe
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.store import RunStore

BATCH = 500
LEASE = 600.0


async def order_of_starts(store: RunStore, pipe: Pipe, counts: Mapping[str, int]) -> list[str]:
    """Accepts so many runs of each owner, one owner after the other; returns the owner of each run that starts."""
    request = DelegationRequest(task="do it")
    owners, tickets = dict[str, str](), list[str]()
    for owner, count in counts.items():
        for first in range(0, count, BATCH):
            new = [(new_id(), request, request.limits) for _ in range(min(BATCH, count - first))]
            accepted = await store.accept(new, LEASE, owner=owner)
            owners |= {each.id: owner for each in accepted}
            tickets += [each.id for each in accepted]
    claims = (store.claim(id, f"t{at}", "worker-1", LEASE, pipe=pipe, is_ticket=True) for at, id in enumerate(tickets))
    return [owners[claim.id] for claim in await asyncio.gather(*claims) if claim]


def jain(shares: Sequence[float]) -> float:
    """Returns Jain's index of fairness: 1 where all shares are equal, 1/n where one has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))
