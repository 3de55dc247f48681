"""Leases: renewed as long as they are held, and never mixed up between two attempts in one worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeServer

from deputize.shared.bus import Bus
from deputize.shared.connection import Pipe, connect
from deputize.shared.ids import new_id
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import CANCEL, LEASES, record_key
from deputize.shared.runs.record import Claim
from deputize.shared.runs.store import RENEW, RunStore
from deputize.worker.contracts import StopReason, StopSignal
from deputize.worker.fleet.lease import Leases
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


# Renewing leases, answer by answer: what each one means, whom it is for, and when it is asked for.


LONG = 30.0


class Questions:
    """Stands for the pipe of the renewals: a test defines the answers."""

    def __init__(self) -> None:
        self.away = False
        self.asked: list[tuple[list[str], Mapping[str, Any]]] = []
        self.answers: list[asyncio.Future[list[str]]] = []

    def script(self, script: object, keys: Sequence[str], arguments: Mapping[str, Any]) -> asyncio.Future[list[str]]:
        self.asked.append(([*keys], arguments))
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]


class Substitute:
    """Stands for the standby process: a test defines what it renewed."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.renewed: dict[tuple[str, str], float] = {}

    def hold(self, id: str, fence: str) -> None:
        self.held[id] = fence

    def drop(self, id: str) -> None:
        del self.held[id]

    def renewals(self) -> dict[tuple[str, str], float]:
        return self.renewed


class Renewing:
    def __init__(self, bus: Any = None) -> None:
        self.pipe = Questions()
        self.standby = Substitute()
        self.bus = bus

    @asynccontextmanager
    async def leases(self, seconds: float = LONG, *, model_call: bool = True) -> AsyncIterator[Leases]:
        """Leases that are renewed all the time; with ``model_call`` false only the time they last is watched."""
        leases = Leases(self.pipe, self.bus, seconds, self.standby)  # pyright: ignore[reportArgumentType]
        self.pipe.away = not model_call
        work = [asyncio.create_task(leases.renew_forever())]
        if self.bus:
            work.append(asyncio.create_task(leases.hear_cancels()))
        try:
            yield leases
            assert not any(task.done() for task in work), "a worker would have ended here"
        finally:
            for task in work:
                task.cancel()
            await asyncio.wait(work)


def claim(name: str, fence: str = "1:token") -> Claim:
    return Claim(name, fence, 1, 1, DelegationRequest(task="t"), Limits(), [], {}, {})


@pytest.fixture
async def renewing() -> Renewing:
    return Renewing()


@pytest.mark.requirement("P-16")
async def test_an_answer_stops_the_run_that_is_lost_or_cancelled_and_no_other(renewing: Renewing) -> None:
    async with (
        renewing.leases(0.3) as leases,
        leases.held(claim("a")) as held,
        leases.held(claim("b")) as lost,
        leases.held(claim("c")) as cancelled,
    ):
        await until(lambda: renewing.pipe.asked)
        keys, arguments = renewing.pipe.asked[0]
        assert keys == [LEASES, *map(record_key, "abc")]
        assert arguments == {"lease_ms": 300, "runs": [{"id": id, "fence": "1:token"} for id in "abc"]}
        renewing.standby.renewed = {(id, "1:token"): time.monotonic() + LONG for id in "abc"}  # so none of them lapses
        renewing.pipe.answers[0].set_result(["renewed", "fenced", "cancel"])
        reasons = await asyncio.wait_for(asyncio.gather(lost.wait(), cancelled.wait()), LONG)
        assert reasons == [StopReason.FENCED, StopReason.CANCELLED]
        assert held.reason is None


async def test_an_answer_that_comes_after_the_run_is_dropped(renewing: Renewing) -> None:
    async with renewing.leases(0.3) as leases:
        async with leases.held(claim("a")) as ended:
            await until(lambda: renewing.pipe.asked)
        async with leases.held(claim("a", "2:token")) as next_attempt:
            renewing.pipe.answers[0].set_result(["fenced"])
            await until(lambda: len(renewing.pipe.asked) == 2)
            assert (ended.reason, next_attempt.reason) == (None, None)
        assert leases.count == 0


async def test_no_renewal_is_sent_without_leases_while_one_is_open_or_redis_is_away(
    renewing: Renewing, caplog: pytest.LogCaptureFixture
) -> None:
    async with renewing.leases(0.03) as leases:
        await passed(0.1)
        assert renewing.pipe.asked == []
        renewing.pipe.away = True
        async with leases.held(claim("a")):
            await passed(0.1)
            assert renewing.pipe.asked == []
            renewing.pipe.away = False
            await until(lambda: renewing.pipe.asked)
            await passed(0.1)
            assert len(renewing.pipe.asked) == 1
            renewing.pipe.answers[0].set_exception(ConnectionError("gone"))
            await until(lambda: len(renewing.pipe.asked) == 2)
            renewing.pipe.answers[1].cancel()
            await until(lambda: len(renewing.pipe.asked) == 3)
            assert caplog.messages == ["the leases were not renewed"]
            renewing.pipe.answers[2].set_result(["renewed"])
        await passed(0.1)
        asked = len(renewing.pipe.asked)
        await passed(0.1)
        assert len(renewing.pipe.asked) == asked


async def passed(seconds: float) -> None:
    """Lets several rounds of renewals go by."""
    end = time.monotonic() + seconds
    await until(lambda: time.monotonic() > end)


@pytest.mark.requirement("P-14")
async def test_a_run_is_stopped_when_its_lease_was_not_renewed_for_its_whole_length(
    renewing: Renewing,
) -> None:
    async with renewing.leases(0.6, model_call=False) as leases:
        begun = time.monotonic()
        async with leases.held(claim("a")) as stop:
            assert await asyncio.wait_for(stop.wait(), LONG) is StopReason.FENCED
    assert 0.6 <= time.monotonic() - begun < 6


async def test_a_late_answer_counts_from_the_moment_it_was_asked_for(renewing: Renewing) -> None:
    async with renewing.leases(0.3) as leases, leases.held(claim("a")) as answered_late:
        await until(lambda: renewing.pipe.asked)
        renewing.pipe.away = True
        async with leases.held(claim("b")) as taken_meanwhile:
            await passed(0.12)
            renewing.pipe.answers[0].set_result(["renewed"])
            await asyncio.wait_for(taken_meanwhile.wait(), LONG)
            assert answered_late.reason is StopReason.FENCED


@pytest.mark.requirement("P-14")
async def test_the_standby_holds_each_lease_and_its_renewals_count_for_that_attempt(
    renewing: Renewing,
) -> None:
    async with renewing.leases(0.3, model_call=False) as leases:
        async with leases.held(claim("a")) as kept, leases.held(claim("b")) as lost:
            assert renewing.standby.held == {"a": "1:token", "b": "1:token"}
            far = time.monotonic() + LONG
            renewing.standby.renewed = {("a", "1:token"): far, ("b", "another"): far, ("elsewhere", "1:token"): far}
            assert await asyncio.wait_for(lost.wait(), LONG) is StopReason.FENCED
            renewing.standby.renewed = {("a", "1:token"): 0.0}  # an older one takes nothing back
            await passed(0.3)
            assert kept.reason is None
        assert renewing.standby.held == {}


async def test_a_request_to_cancel_reaches_its_run_and_one_for_another_worker_does_no_harm() -> None:
    redis = FakeAsyncRedis(server=FakeServer(), decode_responses=True)
    async with (
        Bus(redis) as bus,
        Renewing(bus).leases() as leases,
        leases.held(claim("a")) as stop,
        leases.held(claim("b")) as other,
    ):
        await until(lambda: redis.publish(CANCEL, "elsewhere"))
        await redis.publish(CANCEL, "a")
        assert await asyncio.wait_for(stop.wait(), LONG) is StopReason.CANCELLED
        assert other.reason is None
    await redis.aclose()
