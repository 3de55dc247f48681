"""How notifications are divided among hosts: each has its turn and a bound, whatever another one does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from deputize.shared.connection import Pipe, connect
from deputize.shared.runs.store import WRITING, RunStore
from deputize.shared.runs.webhook_queue import notifications, take
from deputize.worker.fleet.webhook_sender import OF_HOST
from tests.runs.hooks import Hooks
from tests.runs.receiving import receiving
from tests.waiting import until


@pytest.fixture
async def hooks(redis_url: str) -> AsyncIterator[Hooks]:
    async with connect(redis_url) as redis, connect(redis_url) as writing, Pipe(writing, WRITING) as pipe:
        yield Hooks(RunStore(redis, 3600), pipe)


async def test_a_host_that_does_not_answer_delays_no_other_one(hooks: Hooks) -> None:
    async with receiving() as silent, receiving() as other:
        silent.hold = asyncio.Event()
        for url in [silent.url] * (OF_HOST + 15) + [other.url] * 3:
            await hooks.ended(url)
        sender = hooks.sender([silent.host, other.host])
        assert [await sender.start_due() for _ in range(2)] == [OF_HOST + 3, 0]
        await until(lambda: len(other.received) == 3)
        silent.hold.set()
        await asyncio.gather(*sender.sending)


async def test_hosts_come_in_turn(hooks: Hooks) -> None:
    for url in ("http://two:1", "http://one:1/x", "http://ONE:1/y", "http://one:1", "https://three/x"):
        await hooks.ended(url)
    sending = await take(hooks.store.redis, 1, 9, 9)
    await hooks.ended("http://two:1")
    found = await take(hooks.store.redis, 4, 2, 9, sending)
    assert [due.host for due in [*sending, *found]] == ["two:1", "one:1", "three", "two:1", "one:1"]


async def test_callers_come_in_turn_and_each_has_a_bound(hooks: Hooks) -> None:
    for number in range(6):
        await hooks.ended(f"http://evil{number}/x", caller="greedy")
    await hooks.ended("http://one/x", caller="honest")
    for number in range(3):
        await hooks.ended(f"http://of-operator{number}/x")
    first = await take(hooks.store.redis, 3, 9, 2)
    assert [due.host for due in first] == ["evil0", "one", "of-operator0"]
    found = await take(hooks.store.redis, 9, 9, 2, first)
    assert [due.host for due in found] == ["evil1", "of-operator1", "of-operator2"], "who has no name has no bound"
    assert await take(hooks.store.redis, 9, 9, 2, [*first, *found]) == []


@pytest.mark.parametrize("callers", [("", ""), ("greedy", "honest"), ("greedy", "")])
async def test_of_many_that_are_due_to_a_busy_host_others_are_found_behind_it(
    hooks: Hooks, callers: tuple[str, str]
) -> None:
    greedy, honest = callers
    for _ in range(7):
        await hooks.ended("http://busy/x", caller=greedy)
    sending = await take(hooks.store.redis, 2, 2, 9)
    await hooks.ended("http://free/x", caller=honest)
    found = [await take(hooks.store.redis, 9, 2, 9, sending, looked_at=5) for _ in range(2)]
    assert [[due.host for due in each] for each in found] == [[], ["free"]]
    assert sum(each.tries for each in await notifications(hooks.store.redis)) == 3


async def test_what_goes_on_to_be_sent_does_not_hide_what_is_behind_it(hooks: Hooks) -> None:
    """One more may always be sent of the first ones, so that never none of them is."""
    for number in range(8):
        await hooks.ended(f"http://evil{number}/x", caller="greedy")
    await hooks.ended("http://free/x")
    found = await take(hooks.store.redis, 9, 9, 2, looked_at=5)
    assert [due.host for due in found] == ["evil0", "evil1"]
    again = [due.host for _ in range(2) for due in await take(hooks.store.redis, 9, 9, 2, found[:1], looked_at=5)]
    assert "free" in again
