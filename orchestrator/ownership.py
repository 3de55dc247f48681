"""Whose delegations an operation concerns: those of the caller's owner alone, or with the scope ``all`` everyone's.

What belongs to another owner does not exist for a caller: it gets the same answer as for an id that never was.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..shared.errors import ScopeMissing
from ..shared.events import Envelope
from ..shared.runs import permissions
from ..shared.runs.cost import fields_of_records
from ..shared.runs.record import OWNER, not_found
from .scopes import Scope

T = TypeVar("T")
_KNOWN = 10_000
"""Owners of delegations that a stream of events keeps."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of a caller; "" is that of the main token, and of records from before there were owners."""

    redis: Any
    owner: str = ""
    is_confined: bool = False

    @property
    def only(self) -> str | None:
        """The owner whose delegations there are; None: all."""
        return self.owner if self.is_confined else None

    async def check(self, *ids: str) -> None:
        """Raises NotFound where one belongs to another owner."""
        if self.is_confined:
            for id, owner in zip(ids, await self._owners(ids), strict=True):
                if owner != self.owner:
                    raise not_found(id)

    async def check_permission(self, id: str) -> None:
        """Raises NotFound where a run of another owner asks for this permission."""
        if self.is_confined and [self.owner] != await self._owners([permissions.delegation_of(id) or ""]):
            raise permissions.unknown(id)

    def check_unconfined(self, what: str) -> None:
        """Raises ScopeMissing for an operation over the delegations of all owners."""
        if self.is_confined:
            detail = f"{what} concerns the delegations of all owners; use a token with the scope `all`"
            raise ScopeMissing(detail, scopes=[Scope.ALL])

    async def own(self, found: Sequence[T], ids: Sequence[str]) -> list[T]:
        """Returns what concerns own delegations; ``ids``: the delegation of each."""
        if not self.is_confined:
            return [*found]
        owners = await self._owners(ids)
        return [each for each, owner in zip(found, owners, strict=True) if owner == self.owner]

    async def own_events(self, events: AsyncIterator[Envelope]) -> AsyncGenerator[Envelope]:
        """Yields those of own delegations."""
        known = dict[str, bool]()
        async for envelope in events:
            id = envelope.delegation_id
            if id not in known:
                if len(known) >= _KNOWN:
                    known.clear()
                known[id] = bool(await self.own([id], [id]))
            if known[id]:
                yield envelope

    async def of(self, id: str) -> str:
        """Returns the owner of a delegation, to whom belongs also what is added to it."""
        (owner,) = await self._owners([id])
        return owner

    async def _owners(self, ids: Sequence[str]) -> list[str]:
        return [owner or "" for (owner,) in await fields_of_records(self.redis, ids, OWNER)]
