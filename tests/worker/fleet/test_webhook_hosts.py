"""How notifications are divided among hosts: each has its turn and a bound, whatever another one does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from deputize.shared.connection import Pipe, connect
from deputize.shared.runs.store import WRITING, RunStore
from deputize.shared.runs.webhooks import notifications, take
from deputize.worker.fleet.webhooks import OF_HOST
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
    for url in ("http://one:1/x", "http://ONE:1/y", "http://one:1", "http://two:1", "https://three/x"):
        await hooks.ended(url)
    found = await take(hooks.store.redis, 4, 9, {"two:1": 8})
    assert [due.host for due in found] == ["one:1", "two:1", "three", "one:1"]


async def test_of_many_that_are_due_to_a_busy_host_others_are_found_behind_it(hooks: Hooks) -> None:
    for url in ["http://busy/x"] * 5 + ["http://free/x"]:
        await hooks.ended(url)
    found = [await take(hooks.store.redis, 9, 2, {"busy": 2}, looked_at=5) for _ in range(2)]
    assert [[due.host for due in each] for each in found] == [[], ["free"]]
    assert sum(each.tries for each in await notifications(hooks.store.redis)) == 1
