"""Leases: a worker's ownership of its runs, renewed in one round trip; a run whose lease is lost stops at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from ...shared.bus import Bus
from ...shared.connection import Pipe
from ...shared.log import log
from ...shared.runs.keys import CANCEL, LEASES, MESSAGES, record_key
from ...shared.runs.record import Claim
from ...shared.runs.store import RENEW
from ..contracts import StopReason, StopSignal


class Standby(Protocol):
    """Renews leases while the event loop is blocked (``worker/standby``)."""

    def hold(self, id: str, fence: str) -> None: ...

    def drop(self, id: str) -> None: ...

    def renewals(self) -> Mapping[tuple[str, str], float]:
        """Returns when each lease was renewed since the last call, by id and fence."""
        ...


@dataclass(slots=True)
class _Held:
    """A lease that this process holds."""

    fence: str
    signal: StopSignal
    renewed: float
    """When the last renewal that succeeded was sent."""


@dataclass(slots=True)
class Leases:
    """All leases of one worker process, and the listener for cancel requests."""

    pipe: Pipe
    """Carries nothing else: a renewal must not queue behind the writes of a thousand runs."""
    bus: Bus
    seconds: float
    standby: Standby | None = None
    """Renews the leases while the event loop is blocked (``worker/standby``)."""
    _held: dict[str, _Held] = field(default_factory=dict[str, _Held])
    _asked: asyncio.Future[list[str]] | None = None

    @property
    def count(self) -> int:
        return len(self._held)

    @asynccontextmanager
    async def held(self, claim: Claim) -> AsyncGenerator[StopSignal]:
        """Renews the lease of a claimed run while the block runs."""
        if earlier := self._held.get(claim.id):  # an attempt that lost its lease and has not noticed yet
            earlier.signal.set(StopReason.FENCED)
        held = self._held[claim.id] = _Held(claim.fence, StopSignal(), time.monotonic())
        if self.standby:
            self.standby.hold(claim.id, claim.fence)
        try:
            yield held.signal
        finally:
            if self._held.get(claim.id) is held:
                del self._held[claim.id]
                if self.standby:
                    self.standby.drop(claim.id)

    async def renew_forever(self) -> None:
        """Renews every third of the lease duration; a run that was not renewed for a whole lease is stopped."""
        while True:
            await asyncio.sleep(self.seconds / 3)
            # First the renewals that the standby made while the loop was blocked.
            for (id, fence), sent in (self.standby.renewals() if self.standby else {}).items():
                if (held := self._held.get(id)) and held.fence == fence:
                    held.renewed = max(held.renewed, sent)
            for held in self._held.values():
                if time.monotonic() - held.renewed > self.seconds:
                    held.signal.set(StopReason.FENCED)
            # On a busy loop a reply is late. It still counts, and a second request would not be faster.
            if self._held and not self.pipe.away and (self._asked is None or self._asked.done()):
                self._asked = self._renew()

    def _renew(self) -> asyncio.Future[list[str]]:
        leases = list(self._held.items())
        sent = time.monotonic()
        keys = [LEASES, *(record_key(id) for id, _ in leases)]
        runs = [{"id": id, "fence": held.fence, **held.signal.used} for id, held in leases]
        asked = self.pipe.script(RENEW, keys, {"lease_ms": int(self.seconds * 1000), "runs": runs})
        asked.add_done_callback(partial(self._answered, leases, sent))
        return asked

    def _answered(self, leases: Sequence[tuple[str, _Held]], sent: float, asked: asyncio.Future[list[str]]) -> None:
        if asked.cancelled():
            return
        if error := asked.exception():
            log.warning("the leases were not renewed", extra={"cause": str(error)})
            return
        for (id, held), answer in zip(leases, asked.result(), strict=True):
            if self._held.get(id) is not held:
                continue  # the run ended meanwhile
            if answer == "fenced":
                log.warning("the lease of %s was taken by another worker", id)
                held.signal.set(StopReason.FENCED)
                continue
            held.renewed = sent
            if answer == "cancel":
                held.signal.set(StopReason.CANCELLED)

    async def hear_cancels(self) -> None:
        """Listens for cancel requests. A missed one is found at the next renewal."""
        async with self.bus.listen(CANCEL) as listener:
            while True:
                id = await listener.get()
                if id is not None and id in self._held:
                    self._held[id].signal.set(StopReason.CANCELLED)

    async def hear_messages(self) -> None:
        """Listens for messages to runs. A missed one is found by the answer of the run's next write."""
        async with self.bus.listen(MESSAGES) as listener:
            while True:
                id = await listener.get()
                if id is not None and id in self._held:
                    self._held[id].signal.message()
