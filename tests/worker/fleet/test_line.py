"""The calls of a process that wait for their turn at an endpoint."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fakeredis import FakeAsyncRedis, FakeServer

from deputize.shared.connection import Pipe
from deputize.shared.runs.store import WRITING
from deputize.worker.fleet.admission.line import Line, Order, PacedCall
from deputize.worker.fleet.admission.outage import Outages
from tests.waiting import until


class CountingPipe(Pipe):
    """A pipe that counts its scripts."""

    scripts = 0

    def __init__(self, client: Any) -> None:
        super().__init__(client, WRITING)

    def script(self, *arguments: Any, **named: Any) -> asyncio.Future[Any]:
        self.scripts += 1
        return super().script(*arguments, **named)


def call(owner: str, priority: int = 5) -> PacedCall:
    return PacedCall(Order(owner, priority))


async def test_the_highest_priority_of_an_owner_is_first_and_of_equals_the_one_that_came_first() -> None:
    line, calls = Line(), [call("a", priority) for priority in (5, 9, 5, 9)]
    for each in calls:
        line.add(each)
    assert line.demand() == {"a": (4, 9)}
    assert [line.take("a") for _ in calls] == [calls[1], calls[3], calls[0], calls[2]]
    assert line.take("a") is None
    assert not line


async def test_owners_take_turns() -> None:
    line = Line()
    for owner in "aaaabbc":
        line.add(call(owner))
    taken = [line.take_any() for _ in range(7)]
    assert "".join(each.order.owner for each in taken if each) == "abcabaa"
    assert line.take_any() is None


async def test_a_call_that_waits_no_more_takes_no_turn_and_is_removed_once() -> None:
    line, gone, leaving, left = Line(), call("a", 9), call("a", 7), call("a")
    for each in (gone, leaving, left):
        line.add(each)
    line.remove(gone)
    line.remove(gone)
    assert line.demand() == {"a": (2, 7)}
    assert leaving.turn
    leaving.turn.cancel()  # its task has not run since
    assert line.take("a") is left
    line.remove(leaving)
    assert line.demand() == {}


async def test_a_process_asks_for_all_of_its_calls_at_once_and_those_that_join_cost_no_script() -> None:
    async with FakeAsyncRedis(server=FakeServer(), decode_responses=True) as client, CountingPipe(client) as pipe:
        pace = Outages(pipe).pace("endpoint")
        for _ in range(2):
            await pace.refused(PacedCall(Order()), "429", 5)
        pipe.scripts, begun = 0, time.monotonic()
        waiting = [asyncio.create_task(pace.wait(PacedCall(Order())))]
        await until(lambda: pipe.scripts)
        for _ in range(100):
            waiting.append(asyncio.create_task(pace.wait(PacedCall(Order()))))
            await asyncio.sleep(0)
        assert pipe.scripts <= 1 + (time.monotonic() - begun) / 0.05
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
