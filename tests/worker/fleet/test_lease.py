"""Leases: renewed as long as they are held, and never mixed up between two attempts in one worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from deputize.shared.bus import Bus
from deputize.shared.connection import Pipe, connect
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import LEASES
from deputize.shared.runs.record import Claim
from deputize.shared.runs.store import RENEW, RunStore
from deputize.worker.fleet.lease import Leases, StopReason, StopSignal
from tests.waiting import until

LEASE_SECONDS = 1.0


class Desk:
    """One delegation, and the leases of the one worker that claims it."""

    def __init__(self, store: RunStore, leases: Leases) -> None:
        self.store = store
        self.leases = leases
        request = DelegationRequest(task="be held")
        self._new = (new_id(), request, request.limits)

    async def claim(self, token: str, seconds: float = LEASE_SECONDS) -> Claim:
        await self.store.accept([self._new], 60)
        claim = await self.store.claim(self._new[0], token, "worker-1", seconds)
        assert claim is not None
        return claim

    async def is_renewed(self) -> None:
        """Returns when the lease ends later than it did when this was called."""
        before = await self._end()
        await until(lambda: self._ends_after(before))

    async def _ends_after(self, moment: float) -> bool:
        return await self._end() > moment

    async def _end(self) -> float:
        return await self.store.redis.zscore(LEASES, self._new[0])


@pytest.fixture
async def desk(redis_url: str) -> AsyncIterator[Desk]:
    async with AsyncExitStack() as stack:
        reading, renewing, listening = [await stack.enter_async_context(connect(redis_url)) for _ in range(3)]
        pipe = await stack.enter_async_context(Pipe(renewing, [RENEW]))
        leases = Leases(pipe, await stack.enter_async_context(Bus(listening)), LEASE_SECONDS)
        work = asyncio.create_task(leases.renew_forever())
        yield Desk(RunStore(reading, 60), leases)
        work.cancel()
        await asyncio.wait({work})


async def test_a_held_lease_is_renewed_again_and_again(desk: Desk) -> None:
    async with desk.leases.held(await desk.claim("one")) as stop:
        for _ in range(5):  # for longer than one lease
            await desk.is_renewed()
        assert stop.reason is None


async def test_an_old_attempt_is_stopped_by_the_next_one_and_takes_no_lease_from_it(desk: Desk) -> None:
    lapsed = await desk.claim("one", seconds=0)
    await until(lambda: desk.store.reap(0))
    async with AsyncExitStack() as new:
        async with desk.leases.held(lapsed) as stop_old:
            stop = await new.enter_async_context(desk.leases.held(await desk.claim("two")))
            assert stop_old.reason is StopReason.FENCED
        await desk.is_renewed()
        assert (desk.leases.count, stop.reason) == (1, None)
    assert desk.leases.count == 0


async def test_the_first_reason_to_stop_stays_unless_the_lease_is_lost() -> None:
    signal = StopSignal()
    signal.set(StopReason.CANCELLED)
    assert await signal.wait() is StopReason.CANCELLED
    signal.set(StopReason.FENCED)
    assert await signal.wait() is StopReason.FENCED
    signal.set(StopReason.CANCELLED)
    assert signal.reason is StopReason.FENCED
