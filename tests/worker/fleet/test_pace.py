"""Requests to an endpoint that limits their rate: the rate is learned, and owners take turns."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeServer

from deputize.shared.connection import Pipe
from deputize.shared.delegation import Usage
from deputize.shared.runs.capacity import capacities
from deputize.shared.runs.keys import OWNER_WEIGHTS, PACES, pace_key
from deputize.shared.runs.store import PACE, WRITING
from deputize.shared.wire import now
from deputize.worker.fleet.admission.line import Order, PacedCall
from deputize.worker.fleet.admission.outage import Outages
from deputize.worker.fleet.admission.pace import EndpointPace
from deputize.worker.models.rate_limits import RateLimit
from tests.waiting import until

KEY = pace_key("endpoint")


@dataclass
class Bucket:
    """The endpoint: a token bucket that is full at first."""

    rate: float
    burst: float
    tokens: float = field(init=False)
    at: float = 0.0
    served: int = 0
    refused: int = 0

    def __post_init__(self) -> None:
        self.tokens = self.burst

    def serves(self, at: float) -> bool:
        self.tokens, self.at = min(self.burst, self.tokens + (at - self.at) * self.rate), at
        if is_served := self.tokens >= 1:
            self.tokens -= 1
        self.served, self.refused = self.served + is_served, self.refused + (not is_served)
        return is_served


@dataclass
class Script:
    """The script over a fake Redis, whose clock can be put forward."""

    redis: Any
    owners: Counter[str] = field(default_factory=Counter[str])
    """Grants by owner."""
    cost: dict[str, float] = field(default_factory=lambda: {"input": 0.0, "output": 0.0})

    async def run(self, operation: str, **arguments: Any) -> list[Any]:
        given = {"cost": self.cost, "endpoint": "endpoint", "model": "m", "operation": operation}
        return await PACE.run(self.redis, [KEY, OWNER_WEIGHTS, PACES], {**given, **arguments})

    async def refused(self, token: str = "a", *, granted: bool = False, asked: float = -1, **more: Any) -> list[Any]:
        retry = asked * 1000 if asked > 0 else asked
        given = {"successes": -1, "error": "429", "served": 2, **more}
        return await self.run("refused", token=token, granted=granted, retry_ms=retry, longest_ms=5000, **given)

    async def limited(self, **given: Any) -> None:
        """Two calls are refused, with nothing served in between."""
        assert (await self.refused("a", **given))[0] == "alone"
        assert (await self.refused("b", **given))[0] == "paced"

    async def ask(self, waiting: Mapping[str, tuple[int, int]], process: str = "p") -> list[tuple[str, int]]:
        """Returns the grants: owners and milliseconds."""
        answer = await self.run("ask", process=process, lease_ms=2000, waiting=waiting)
        assert answer[0] == "paced"
        grants = list(zip(answer[4::2], answer[5::2], strict=True))
        self.owners.update(owner for owner, _ in grants)
        return grants

    async def forward(self, milliseconds: float) -> None:
        state = await self.state()
        await self.redis.set(KEY, json.dumps({**state, "began": state["began"] - milliseconds}))

    async def state(self) -> dict[str, Any]:
        return json.loads(await self.redis.get(KEY))

    async def now(self) -> float:
        seconds, micros = await self.redis.time()
        return seconds + micros / 1e6 - (await self.state())["began"] / 1000

    async def serve(self, bucket: Bucket, seconds: float, *, retry: bool = False) -> None:
        """Sends what is granted to a bucket, with always more to send."""
        end = await self.now() + seconds
        while (now := await self.now()) < end:
            for _, delay in await self.ask({"x": (50, 5)}):
                if not bucket.serves(now + delay / 1000):
                    asked = -(-(1 - bucket.tokens) / bucket.rate // 1) if retry else -1
                    await self.refused("c", granted=True, asked=asked)
            await self.forward(50)

    async def grants(self, waiting: dict[str, tuple[int, int]], count: int) -> list[str]:
        """Returns the owners of so many grants, of which each makes its owner's demand smaller."""
        found = list[str]()
        while len(found) < count:
            for owner, _ in await self.ask(waiting):
                found.append(owner)
                left, priority = waiting[owner]
                waiting[owner] = left - 1, priority
            waiting = {owner: wanted for owner, wanted in waiting.items() if wanted[0]}
            await self.forward(500)
        return found[:count]


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    async with FakeAsyncRedis(server=FakeServer(), decode_responses=True) as client:
        yield Script(client)


@pytest.fixture
async def paces() -> AsyncIterator[list[EndpointPace]]:
    """Two worker processes over one Redis."""
    server = FakeServer()
    async with AsyncExitStack() as opened:
        clients = [FakeAsyncRedis(server=server, decode_responses=True) for _ in range(2)]
        pipes = [await opened.enter_async_context(Pipe(client, WRITING)) for client in clients]
        yield [Outages(pipe).pace("endpoint") for pipe in pipes]
    for client in clients:
        await client.aclose()


async def test_an_endpoint_that_refuses_nothing_costs_no_script_and_soon_takes_all_at_once(
    paces: list[EndpointPace],
) -> None:
    pace, calls = paces[0], [PacedCall(Order()) for _ in range(40)]
    sending = [asyncio.create_task(pace.wait(call)) for call in calls]
    await until(lambda: sum(task.done() for task in sending) == 2)
    for call in calls:
        await until(sending[calls.index(call)].done)
        assert pace.window.count <= pace.window.size
        pace.passed(call)
    await asyncio.gather(*sending)
    assert pace.window.size >= 40
    assert not pace.pipe._jobs


async def test_no_more_requests_than_the_window_go_at_a_time(paces: list[EndpointPace]) -> None:
    pace = paces[0]
    pace.window.size, pace.window._used = 100, time.monotonic()
    sending = [asyncio.create_task(pace.wait(PacedCall(Order()))) for _ in range(150)]
    await until(sending[99].done)
    assert sum(task.done() for task in sending) == pace.window.count == 100
    await asyncio.wait_for(asyncio.gather(*sending), 60)


async def test_requests_that_are_not_refused_soon_let_others_follow_without_a_reply(paces: list[EndpointPace]) -> None:
    """The first replies of a slow model may take minutes."""
    await asyncio.wait_for(asyncio.gather(*(paces[0].wait(PacedCall(Order())) for _ in range(30))), 60)


async def test_one_call_that_is_refused_again_and_again_sets_no_pace(script: Script) -> None:
    for _ in range(5):
        assert (await script.refused("bad"))[0] == "alone"
    assert (await script.run("ask", process="p", lease_ms=1, waiting={"x": (1, 5)}))[0] == "open"
    await script.run("passed")
    assert (await script.refused("another"))[0] == "alone"


async def test_a_call_that_fails_while_others_are_served_fails_alone(script: Script) -> None:
    successes = (await script.refused("bad"))[2]
    await script.run("passed")
    assert (await script.refused("bad", successes=successes))[0] == "alone"
    assert (await script.refused("another"))[0] == "alone"  # it is the first one in a row


@pytest.mark.parametrize(
    ("rate", "burst", "retry", "least"),
    [(4, 8, False, 0.95), (4, 8, True, 0.95), (40, 80, False, 0.95), (40, 80, True, 0.95), (4, 1, False, 0.7)],
)
async def test_the_pace_is_the_endpoint_s_refill(
    script: Script, rate: float, burst: float, retry: bool, least: float
) -> None:
    """A bucket of one loses what is not fetched at once."""
    bucket = Bucket(rate, burst)
    bucket.tokens = 0
    await script.limited()
    await script.serve(bucket, 20, retry=retry)
    served, refused = bucket.served, bucket.refused
    await script.serve(bucket, 30, retry=retry)
    served, refused = bucket.served - served, bucket.refused - refused
    assert served >= least * 30 * rate
    assert refused <= max(2, 0.05 * served)


@pytest.mark.long
@pytest.mark.parametrize(("before", "after", "seconds"), [(8, 2, 20), (4, 8, 80)])
async def test_the_pace_follows_a_limit_that_changes(
    script: Script, before: float, after: float, seconds: float
) -> None:
    bucket = Bucket(before, before)
    await script.limited()
    await script.serve(bucket, 15)
    bucket.rate = bucket.burst = after
    await script.serve(bucket, seconds)
    served = bucket.served
    await script.serve(bucket, 10)
    assert bucket.served - served >= 0.9 * 10 * after
    assert (await script.state())["rate"] < 2 * after


@pytest.mark.parametrize(("asked", "seconds"), [(2, 2), (3600, 5)])
async def test_nothing_is_granted_before_the_time_that_the_endpoint_asks_for(
    script: Script, asked: float, seconds: float
) -> None:
    """Of a long one only its caller may be asked, and the next request shows that."""
    await script.limited(asked=asked)
    assert await script.ask({"x": (1, 5)}) == []
    await script.forward(seconds * 1000 - 500)
    assert await script.ask({"x": (1, 5)}) == []
    await script.forward(500)
    assert [owner for owner, _ in await script.ask({"x": (1, 5)})] == ["x"]


@pytest.mark.costly
async def test_where_all_is_refused_requests_become_rare_until_one_is_served(script: Script) -> None:
    dead = Bucket(0, 0)
    await script.limited()
    await script.serve(dead, 60)
    assert dead.refused < 25
    await script.run("passed")
    bucket = Bucket(100, 100)
    await script.serve(bucket, 10)
    assert bucket.served > 100


async def test_the_refusals_of_one_owner_keep_no_other_one_waiting(script: Script) -> None:
    for token in ("a", "b"):
        await script.refused(token, owner="bad", asked=40)
    for _ in range(3):
        assert await script.ask({"bad": (9, 9), "good": (2, 5)}) == [("good", 0), ("good", 0)]
    await script.refused("c", owner="good", granted=True)
    assert await script.ask({"bad": (9, 9), "good": (2, 5)}) == []


async def test_between_served_requests_a_long_time_that_is_asked_for_is_tried_out(script: Script) -> None:
    await script.limited(asked=40)
    await script.forward(5000)
    for served, seconds in ((0, 5), (2, 1), (0, 2), (0, 4), (0, 5), (2, 1)):
        for _ in range(served):
            assert await script.grants({"x": (1, 5)}, 1)
            await script.run("passed")
        assert await script.grants({"x": (1, 5)}, 1)
        await script.refused("x", granted=True, asked=40)
        await script.forward(seconds * 1000 - 300)
        assert await script.ask({"x": (1, 5)}) == []
        await script.forward(300)


async def test_owners_take_turns_whatever_number_of_requests_each_has(script: Script) -> None:
    await script.limited()
    found = await script.grants({"many": (100, 5), "few": (5, 5)}, 20)
    assert 8 <= max(at for at, owner in enumerate(found) if owner == "few") <= 10


async def test_an_owner_that_comes_later_does_not_make_up_for_the_time_before(script: Script) -> None:
    await script.limited()
    await script.grants({"early": (30, 5)}, 30)
    found = await script.grants({"early": (30, 5), "late": (30, 5)}, 10)
    assert abs(found.count("early") - found.count("late")) <= 2  # one before the first round, and one after the last


async def test_51_owners_have_the_same_share(script: Script) -> None:
    await script.limited()
    found = Counter(await script.grants({f"owner {n}": (100, 5) for n in range(51)}, 102))
    assert set(found.values()) == {2}


async def test_a_weight_of_two_is_two_turns(script: Script) -> None:
    await script.redis.hset(OWNER_WEIGHTS, "heavy", 2)
    await script.limited()
    found = Counter(await script.grants({"owner:heavy": (100, 5), "owner:light": (100, 5)}, 30))
    assert found["owner:heavy"] == pytest.approx(20, abs=1)


async def test_grants_that_another_process_caused_are_kept_for_the_next_ask(script: Script) -> None:
    await script.limited()
    await script.ask({"a": (1, 9)}, "one")
    await script.ask({"a": (1, 5)}, "two")
    await script.forward(1000)
    assert await script.ask({"a": (1, 5)}, "two") == []
    assert [owner for owner, _ in await script.ask({"a": (1, 9)}, "one")] == ["a"]
    await script.forward(1000)
    assert [owner for owner, _ in await script.ask({"a": (1, 5)}, "two")] == ["a"]
    assert await script.ask({}, "one") == []


async def test_a_grant_that_is_kept_for_a_process_is_not_granted_again(script: Script) -> None:
    await script.limited()
    await script.ask({"a": (1, 5)}, "one")
    await script.forward(600)
    assert await script.ask({}, "two") == []
    await script.forward(600)
    assert [owner for owner, _ in await script.ask({"a": (1, 5)}, "one")] == ["a"]


async def test_what_a_process_that_is_gone_waited_for_is_forgotten(script: Script) -> None:
    await script.limited(asked=3)
    await script.ask({"gone": (100, 5)}, "gone")
    await script.forward(4000)
    await script.ask({"a": (1, 5)})
    assert not (await script.state())["processes"]
    assert script.owners == {"a": 1}


async def test_the_more_urgent_request_of_an_owner_is_first_also_in_another_process(script: Script) -> None:
    await script.limited(asked=1)
    await script.ask({"x": (1, 5)}, "one")
    await script.ask({"x": (1, 9)}, "two")
    await script.forward(1000)
    assert await script.ask({"x": (1, 5)}, "one") == []
    assert [owner for owner, _ in await script.ask({"x": (1, 9)}, "two")] == ["x"]


async def _refused(pace: EndpointPace, asked: float | None = None) -> None:
    for _ in range(2):
        await pace.refused(PacedCall(Order()), "429", asked)


async def test_waiting_calls_of_all_processes_go_on_the_urgent_ones_first(paces: list[EndpointPace]) -> None:
    await _refused(paces[0])
    await _refused(paces[1])
    sent = list[int]()

    async def send(pace: EndpointPace, priority: int) -> None:
        await pace.wait(PacedCall(Order("x", priority=priority)))
        sent.append(priority)

    ways = [send(pace, priority) for priority in (1, 9, 5) for pace in paces]
    await asyncio.wait_for(asyncio.gather(*ways), 60)
    assert sorted(sent) == [1, 1, 5, 5, 9, 9]
    assert sent.index(9) < sent.index(1)


async def test_a_call_that_is_cancelled_leaves_its_place_and_nothing_behind(paces: list[EndpointPace]) -> None:
    pace = paces[0]
    await _refused(pace, 5)
    waiting = asyncio.create_task(pace.wait(PacedCall(Order())))
    await until(lambda: pace.pipe._redis.exists(KEY))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert pace._asking is None
    assert not pace._line

    async def empty() -> bool:
        return json.loads(await pace.pipe._redis.get(KEY))["processes"] in ({}, [])

    await until(empty)


async def test_a_pace_that_ended_in_redis_lets_all_go(paces: list[EndpointPace]) -> None:
    pace = paces[0]
    await _refused(pace, 5)
    waiting = [asyncio.create_task(pace.wait(PacedCall(Order()))) for _ in range(5)]
    await pace.pipe._redis.delete(KEY)
    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert not pace.is_known


async def test_requests_that_an_endpoint_has_left_are_granted_at_once_and_then_its_refill(script: Script) -> None:
    await script.run("heard", limits={"requests": (600, 20)})
    assert len(await script.ask({"x": (50, 5)})) in (20, 21)
    await script.forward(1000)
    assert len(await script.ask({"x": (50, 5)})) in (10, 11)


@pytest.mark.parametrize(("kind", "cost"), [("input", (1000, 10)), ("output", (10, 1000)), ("tokens", (500, 500))])
async def test_each_limit_on_tokens_holds(script: Script, kind: str, cost: tuple[float, float]) -> None:
    script.cost = dict(zip(("input", "output"), cost, strict=True))
    await script.run("heard", limits={"requests": (6000, 6000), kind: (60_000, 5000)})
    assert len(await script.ask({"x": (50, 5)})) == 5
    await script.forward(3000)
    assert len(await script.ask({"x": (50, 5)})) == 3


async def test_limits_that_are_far_again_are_forgotten(script: Script) -> None:
    await script.run("heard", limits={"requests": (600, 20)})
    assert await script.run("heard", limits={}) == ["open"]


async def test_other_users_of_the_same_limit_are_seen_in_what_is_left(script: Script) -> None:
    await script.run("heard", limits={"requests": (600, 100)})
    await script.run("heard", limits={"requests": (600, 3)})
    assert len(await script.ask({"x": (50, 5)})) in (3, 4)


async def test_a_refusal_beside_stated_limits_sets_a_pace_too(script: Script) -> None:
    await script.run("heard", limits={"requests": (6000, 1000)})
    await script.limited()
    assert len(await script.ask({"x": (50, 5)})) == 0
    await script.forward(500)
    assert len(await script.ask({"x": (50, 5)})) == 1


async def test_a_process_asks_only_while_a_limit_is_near(paces: list[EndpointPace]) -> None:
    pace = paces[0]
    pace.heard({"requests": RateLimit(1000, 900), "input": RateLimit(10_000, 9000)})
    assert (pace.is_known, pace.window.size, len(pace.pipe._jobs)) == (False, 900, 0)
    pace.heard({"requests": RateLimit(1000, 900), "input": RateLimit(10_000, 1000)})
    assert pace.is_known
    await asyncio.wait_for(pace.wait(PacedCall(Order())), 60)
    pace._reported = 0
    pace.heard({"requests": RateLimit(1000, 900), "input": RateLimit(10_000, 9000)})
    await asyncio.wait_for(pace.wait(PacedCall(Order())), 60)
    assert not pace.is_known


async def test_what_is_read_from_the_cache_costs_nothing_of_a_limit(paces: list[EndpointPace]) -> None:
    pace = paces[0]
    pace.used(Usage(input_tokens=100, cache_read_tokens=50_000, cache_write_tokens=900, output_tokens=10))
    assert pace._tokens == {"input": 1000, "output": 10}


async def test_what_waits_and_until_when_is_shown_to_each_owner_for_itself(script: Script) -> None:
    assert await capacities(script.redis) == []
    await script.limited(asked=3)
    await script.ask({"owner:ann": (3, 5), "session:s": (2, 5)})
    await script.ask({"owner:ann": (1, 5), "owner:bob": (1, 5)}, "other")
    (seen,) = await capacities(script.redis)
    assert (seen.model, seen.waiting, seen.owners, seen.refused) == ("m", 7, {"ann": 4, "bob": 1}, 1)
    assert seen.until is not None
    assert 0 < (seen.until - now()).total_seconds() <= 3
    (own,) = await capacities(script.redis, "ann")
    assert (own.waiting, own.owners) == (7, {"ann": 4})
    await script.forward(4000)
    (later,) = await capacities(script.redis)
    assert (later.waiting, later.until) == (0, None)  # of processes that ask no more
    await script.redis.delete(KEY)
    assert await capacities(script.redis) == []
