"""Where the tools get the service's operations: in this process, or over HTTP from a service that may have to start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ...shared.delegation import Delegation
from ...shared.request import DelegationRequest
from ..client import Client
from ..delegations import Delegations
from ..readiness import NO_WORKER

Operations = Delegations | Client


class Source(Protocol):
    """Returns operations on demand, so that a client that never delegates starts nothing."""

    @property
    def folder(self) -> Path | None:
        """The directory that relative workspace paths start from; None if there are only absolute ones."""
        ...

    @property
    def stays(self) -> bool:
        """Whether the service continues without this client."""
        ...

    async def for_work(self, requests: Sequence[DelegationRequest]) -> Operations:
        """Returns operations of a service that executes these. Raises Misconfigured and Unavailable."""
        ...

    async def for_reading(self) -> Operations:
        """Returns operations of a service that may have no workers. Raises Misconfigured and Unavailable."""
        ...

    async def if_open(self) -> Operations | None:
        """Returns operations if the service is in use already; never starts it."""
        ...


async def create(operations: Operations, request: DelegationRequest) -> Delegation:
    if isinstance(operations, Client):
        return await operations.create(request)
    return (await operations.accept(request)).delegation


async def create_all(operations: Operations, requests: Sequence[DelegationRequest]) -> list[Delegation]:
    """Submits all or none. Returns their delegations in order."""
    return await (operations.batch(requests) if isinstance(operations, Client) else operations.accept_batch(requests))


async def not_ready(operations: Operations) -> str | None:
    """Returns why new work is only queued, or None if it is executed."""
    if isinstance(operations, Client):
        return await operations.not_ready()
    ready = await operations.ready()
    return ready.redis or (None if ready.workers else NO_WORKER)
