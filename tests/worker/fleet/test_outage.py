"""One run of the fleet probes an endpoint that fails; the others wait, and follow after its success."""

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
from deputize.worker.fleet.admission.outage import LONGEST_SECONDS, PROBE_LEASE_SECONDS, Admission, FairLock, Outages
from tests.waiting import until

KEY = outage_key("endpoint")
TIMES = {"first_ms": 1000, "longest_ms": 5000, "jitter": 1}


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


async def failed(
    redis: Any, token: str = "a", asked: float = -1, error: str = "529", successes: int = -1, owner: str = ""
) -> tuple[str, float]:
    """The answer to a failure, and the seconds until the next probe. ``successes``: known since the call fails."""
    retry_ms = asked * 1000 if asked > 0 else asked
    more = {"error": error, "successes": successes, "retry_ms": retry_ms, "owner": owner}
    answer = await said(redis, "failed", token, **more, **TIMES)
    return answer[0], answer[1] / 1000


async def outage(redis: Any, **last: Any) -> float:
    """Begins an outage: seconds until its next probe."""
    await failed(redis, "another")
    answer, seconds = await failed(redis, **last)
    assert answer == "wait"
    return seconds


async def now(redis: Any) -> int:
    seconds, micros = await redis.time()
    return seconds * 1000 + micros // 1000


async def test_without_a_failure_no_judge_is_asked_and_nothing_waits(processes: list[Outages]) -> None:
    async with processes[0].admission("endpoint") as admission:
        assert await admission.ask() == ("open", 0, "")
    assert not processes[0].pipe._jobs


@pytest.mark.parametrize("asked", [-1, 0, 40])
async def test_one_run_that_fails_again_and_again_is_no_outage(redis: Any, asked: float) -> None:
    for _ in range(5):
        assert await failed(redis, asked=asked) == ("alone", 0)
        assert (await said(redis, "ask", "b"))[0] == "go"


@pytest.mark.parametrize(("asked", "seconds"), [(0, 0), (2, 2), (40, 5)])
async def test_a_second_run_that_fails_makes_an_outage_with_the_delay_that_is_asked_for(
    redis: Any, asked: float, seconds: float
) -> None:
    """Of a long one only its caller may be asked, and the next probe shows that."""
    assert await outage(redis, asked=asked) == pytest.approx(seconds, abs=0.01)


@pytest.mark.parametrize("asked", [-1, 40])
async def test_all_runs_of_one_owner_are_one_witness(redis: Any, asked: float) -> None:
    for number in range(20):
        assert (await failed(redis, f"{number}", asked=asked, owner="one"))[0] == "alone"
        assert (await said(redis, "ask", "b"))[0] == "go"
    assert (await failed(redis, "another", asked=asked, owner="two"))[0] == "wait"


async def test_many_that_wait_before_another_one_do_not_all_come_before_it() -> None:
    """Each of them may be a request that fails, after which the next probe is due in seconds."""
    places = list[int]()
    for _ in range(30):
        lock, order = FairLock(), list[str]()

        async def take(name: str, lock: FairLock = lock, order: list[str] = order) -> None:
            async with lock:
                order.append(name)
                await asyncio.sleep(0)

        await asyncio.gather(*(take(f"bad {number}") for number in range(20)), take("good"))
        places.append(order.index("good"))
    assert min(places) < 10
    assert sum(places) / len(places) < 17


async def test_a_turn_is_passed_on_by_one_that_is_cancelled_when_it_gets_it() -> None:
    lock = FairLock()

    async def take() -> None:
        async with lock:
            pass

    async with lock:
        waiting = asyncio.create_task(take())
        await asyncio.sleep(0)
    waiting.cancel()  # the lock is its own, and it has not run since
    await asyncio.wait({waiting})
    await asyncio.wait_for(take(), 5)


async def test_a_success_in_between_makes_each_failure_one_s_own(redis: Any) -> None:
    assert (await failed(redis, "a"))[0] == "alone"
    await said(redis, "passed", "good")
    assert (await failed(redis, "b"))[0] == "alone"
    assert (await said(redis, "ask", "good"))[0] == "go"


async def test_runs_that_failed_while_others_succeeded_never_make_an_outage(redis: Any) -> None:
    """Several bad requests beside good ones: only the first failures of the bad ones can be taken for an outage."""
    await outage(redis)
    await said(redis, "passed", "good")
    for token in ("a", "another", "a", "another"):
        assert (await failed(redis, token, successes=0))[0] == "alone"
    assert (await said(redis, "ask", "good"))[0] == "go"


async def test_a_success_before_a_probe_has_failed_ends_the_outage_at_once(redis: Any) -> None:
    await outage(redis)
    await said(redis, "passed", "sent before")
    assert [(await said(redis, "ask", token))[0] for token in "cdefgh"] == ["go"] * 6


async def test_a_success_resets_the_delay(redis: Any) -> None:
    await outage(redis)
    for _ in range(2):
        await redis.hset(KEY, "due", 0)
        await said(redis, "ask", "a")
        await failed(redis)
    await redis.hset(KEY, "due", 0)
    await said(redis, "ask", "a")
    await said(redis, "passed", "a")
    assert await outage(redis) == pytest.approx(1, abs=0.01)


async def test_a_call_that_has_not_failed_probes_first(redis: Any) -> None:
    await outage(redis, asked=0)
    assert (await said(redis, "ask", "a", failed=True))[0] == "wait"
    assert (await said(redis, "ask", "fresh"))[0] == "ahead"
    await said(redis, "left", "fresh")
    await redis.hset(KEY, "due", await now(redis) - 500)
    assert (await said(redis, "ask", "a", failed=True))[0] == "ahead"


async def test_one_of_all_processes_probes_when_it_is_due(redis: Any) -> None:
    await outage(redis, asked=0)
    assert [(await said(redis, "ask", token))[0] for token in "abc"] == ["ahead", "wait", "wait"]


async def test_before_a_probe_is_due_all_wait_and_know_why(redis: Any) -> None:
    await outage(redis, asked=4.5, error="overloaded")
    answer, milliseconds, error, _ = await said(redis, "ask")
    assert (answer, error) == ("wait", "overloaded")
    assert 4_000 < milliseconds <= 4_500


async def test_the_delay_doubles_with_each_failed_probe_up_to_the_longest(redis: Any) -> None:
    delays = [await outage(redis)]
    for _ in range(4):
        await redis.hset(KEY, "due", 0)
        assert (await said(redis, "ask"))[0] == "ahead"
        delays.append((await failed(redis))[1])
    assert delays == pytest.approx([1, 2, 4, 5, 5], abs=0.01)
    assert LONGEST_SECONDS == 5


async def test_failures_of_requests_from_before_do_not_count_but_what_they_are_asked_does(redis: Any) -> None:
    first = await outage(redis)
    assert (await failed(redis, "b"))[1] <= first
    assert (await failed(redis, "b", asked=4))[1] == pytest.approx(4, abs=0.1)
    assert await redis.hget(KEY, "failures") == "1"


async def test_a_dead_probe_is_replaced_when_its_lease_ends(redis: Any) -> None:
    await outage(redis, asked=0)
    assert (await said(redis, "ask", "dead", lease_ms=150))[0] == "ahead"
    assert (await said(redis, "ask", "b"))[0] == "wait"
    await until(lambda: _answered(redis, "ahead"))
    await said(redis, "left", "dead")
    assert (await said(redis, "ask", "c"))[0] == "wait"  # it is not the probe any more


async def test_a_probe_that_is_renewed_is_not_replaced(redis: Any) -> None:
    await outage(redis, asked=0)
    await said(redis, "ask", "a", lease_ms=1)
    await said(redis, "renew", "a", lease_ms=60_000)
    assert (await said(redis, "ask", "b"))[0] == "wait"


async def _answered(redis: Any, answer: str) -> bool:
    return (await said(redis, "ask", "b"))[0] == answer


async def test_a_probe_that_ends_with_its_run_leaves_its_place_at_once(processes: list[Outages]) -> None:
    mine, other = (each.admission("endpoint") for each in processes[:2])
    await _outage(mine, other)
    async with mine:
        await mine.wait(None)
        assert mine.is_ahead
        assert (await other.ask())[0] == "wait"
    async with other:
        await asyncio.wait_for(other.wait(None), PROBE_LEASE_SECONDS / 2)
        assert other.is_ahead


async def test_a_run_that_is_cancelled_while_it_asks_does_not_keep_the_probe(processes: list[Outages]) -> None:
    mine, other = (each.admission("endpoint") for each in processes[:2])
    await _outage(mine, other)

    async def ask() -> None:
        async with mine:
            await mine.wait(None)

    asking = asyncio.create_task(ask())
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    async with other:
        await asyncio.wait_for(other.wait(None), PROBE_LEASE_SECONDS / 2)
        assert other.is_ahead


async def test_after_a_success_the_others_follow_and_several_failures_close_it_again(redis: Any) -> None:
    await outage(redis, asked=0)
    await said(redis, "ask", "a")
    await said(redis, "passed", "a")
    assert [(await said(redis, "ask", token))[0] for token in "bcdefghijk"] == ["go"] * 10
    assert (await failed(redis, "b"))[0] == "alone"
    assert (await failed(redis, "c"))[0] == "wait"
    assert (await said(redis, "ask", "d"))[0] == "wait"


async def _outage(*admissions: Admission, retry_after: float = 0.05) -> None:
    for admission in admissions[:2]:
        await admission.failed("529", retry_after)


async def test_runs_of_all_processes_get_through_after_one_probe(processes: list[Outages]) -> None:
    waiting = [each.admission("endpoint") for each in processes for _ in range(2)]
    await _outage(*waiting)
    through: list[str] = []

    async def pass_(admission: Any) -> None:
        async with admission:
            await admission.wait(None)
            through.append("probe" if admission.is_ahead else "go")
            admission.passed()

    await asyncio.wait_for(asyncio.gather(*map(pass_, waiting)), 60)
    assert len(through) == 6
    assert through.count("probe") == 1


async def test_no_caller_waits_longer_than_it_may(processes: list[Outages]) -> None:
    admission, other = (processes[0].admission("endpoint") for _ in range(2))
    await _outage(admission, other, retry_after=500)
    await asyncio.wait_for(admission.wait(0.05), 30)
    assert not admission.is_ahead
