"""One run of the fleet probes an endpoint that fails; the others wait, and follow in a ramp."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeServer

from deputize.shared.connection import Pipe
from deputize.shared.runs.keys import outage_key
from deputize.shared.runs.store import OUTAGE, WRITING
from deputize.worker.fleet.outage import LEASE_SECONDS, LONGEST_SECONDS, Outages
from tests.waiting import until

KEY = outage_key("endpoint")


@pytest.fixture
async def processes() -> AsyncIterator[list[Outages]]:
    """Three worker processes over one Redis."""
    server = FakeServer()
    async with AsyncExitStack() as opened:
        clients = [FakeAsyncRedis(server=server, decode_responses=True) for _ in range(3)]
        yield [Outages(await opened.enter_async_context(Pipe(client, WRITING))) for client in clients]
    for client in clients:
        await client.aclose()


@pytest.fixture
async def redis() -> AsyncIterator[Any]:
    async with FakeAsyncRedis(server=FakeServer(), decode_responses=True) as client:
        yield client


async def said(redis: Any, operation: str, token: str = "a", **arguments: Any) -> list[Any]:
    return await OUTAGE.run(redis, [KEY], {"operation": operation, "token": token, "lease_ms": 60_000, **arguments})


async def failed(redis: Any, token: str = "a", asked: float = -1, error: str = "529") -> float:
    """Seconds until the next probe."""
    times = {"retry_ms": asked * 1000 if asked > 0 else asked, "first_ms": 1000, "longest_ms": 30_000, "jitter": 1}
    return (await said(redis, "failed", token, error=error, **times))[1] / 1000


async def test_without_a_failure_nobody_is_asked_or_waits(processes: list[Outages]) -> None:
    async with processes[0].admission("endpoint") as admission:
        assert await admission.ask() == ("open", 0, "")
    assert not processes[0].pipe._jobs


async def test_one_of_all_processes_probes_when_it_is_due(redis: Any) -> None:
    await failed(redis, asked=0)
    assert [(await said(redis, "ask", token))[0] for token in "abc"] == ["probe", "wait", "wait"]


async def test_before_a_probe_is_due_all_wait_and_know_why(redis: Any) -> None:
    await failed(redis, asked=45, error="overloaded")
    answer, milliseconds, error = await said(redis, "ask")
    assert (answer, error) == ("wait", "overloaded")
    assert 40_000 < milliseconds <= 45_000


async def test_the_delay_doubles_with_each_failed_probe_up_to_the_longest(redis: Any) -> None:
    delays = [await failed(redis)]
    for _ in range(7):
        await redis.hset(KEY, "due", 0)
        assert (await said(redis, "ask"))[0] == "probe"
        delays.append(await failed(redis))
    assert delays == pytest.approx([1, 2, 4, 8, 16, 30, 30, 30], abs=0.01)
    assert LONGEST_SECONDS == 30


async def test_failures_of_requests_from_before_do_not_count_but_what_they_are_asked_does(redis: Any) -> None:
    first = await failed(redis)
    assert await failed(redis, "b") <= first
    assert await failed(redis, "b", asked=20) == pytest.approx(20, abs=0.1)
    assert await redis.hget(KEY, "failures") == "1"


async def test_a_dead_probe_is_replaced_when_its_lease_ends(redis: Any) -> None:
    await failed(redis, asked=0)
    assert (await said(redis, "ask", "dead", lease_ms=150))[0] == "probe"
    assert (await said(redis, "ask", "b"))[0] == "wait"
    await until(lambda: _answered(redis, "probe"))
    await said(redis, "passed", "dead")
    assert await redis.hget(KEY, "state") == "closed"  # it lost its right to say so


async def test_a_probe_that_is_renewed_is_not_replaced(redis: Any) -> None:
    await failed(redis, asked=0)
    await said(redis, "ask", "a", lease_ms=1)
    await said(redis, "renew", "a", lease_ms=60_000)
    assert (await said(redis, "ask", "b"))[0] == "wait"


async def _answered(redis: Any, answer: str) -> bool:
    return (await said(redis, "ask", "b"))[0] == answer


async def test_a_probe_that_ends_with_its_run_leaves_its_place_at_once(processes: list[Outages]) -> None:
    mine, other = (each.admission("endpoint") for each in processes[:2])
    await mine.failed("529", 0)
    mine.suspect()
    other.suspect()
    async with mine:
        assert (await mine.ask())[0] == "probe"
        assert (await other.ask())[0] == "wait"
    async with other:
        await asyncio.wait_for(other.wait(None), LEASE_SECONDS / 2)
        assert other.probes


async def test_a_run_that_is_cancelled_while_it_asks_does_not_keep_the_probe(processes: list[Outages]) -> None:
    mine, other = (each.admission("endpoint") for each in processes[:2])
    await mine.failed("529", 0)
    mine.suspect()
    other.suspect()

    async def ask() -> None:
        async with mine:
            await mine.wait(None)

    asking = asyncio.create_task(ask())
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    async with other:
        await asyncio.wait_for(other.wait(None), LEASE_SECONDS / 2)
        assert other.probes


async def test_after_a_success_the_others_follow_in_a_ramp(redis: Any) -> None:
    await failed(redis, asked=0)
    await said(redis, "ask", "a")
    await said(redis, "passed", "a")
    first = [(await said(redis, "ask", token))[0] for token in "bcdefghijk"]
    assert first[-1] == "wait"
    seconds, micros = await redis.time()
    await redis.hset(KEY, "since", seconds * 1000 + micros // 1000 - 5000)
    later = [(await said(redis, "ask", token))[0] for token in map(str, range(50))]
    assert 20 <= later.count("go") < 50
    await redis.hset(KEY, "since", seconds * 1000 - 11_000)
    assert (await said(redis, "ask", "z"))[0] == "open"
    assert not await redis.exists(KEY)


async def test_a_failure_in_the_ramp_closes_it_again_with_a_longer_delay(redis: Any) -> None:
    await failed(redis, asked=0)
    await said(redis, "ask", "a")
    await said(redis, "passed", "a")
    assert await failed(redis, "b") == pytest.approx(2, abs=0.01)
    assert (await said(redis, "ask", "c"))[0] == "wait"


async def test_runs_of_all_processes_get_through_after_one_probe(processes: list[Outages]) -> None:
    waiting = [each.admission("endpoint") for each in processes for _ in range(2)]
    await waiting[0].failed("529", 0.05)
    through: list[str] = []

    async def pass_(admission: Any) -> None:
        admission.suspect()
        async with admission:
            await admission.wait(None)
            through.append("probe" if admission.probes else "go")
            admission.passed()

    await asyncio.wait_for(asyncio.gather(*map(pass_, waiting)), 60)
    assert through == ["probe", *["go"] * 5]


async def test_nobody_waits_longer_than_it_may(processes: list[Outages]) -> None:
    admission = processes[0].admission("endpoint")
    await admission.failed("529", 500)
    admission.suspect()
    await asyncio.wait_for(admission.wait(0.05), 30)
    assert not admission.probes
