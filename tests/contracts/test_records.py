"""What every record of runs promises: the one in Redis, and the one in memory with which tests run a loop alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import pytest

from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import events_key, history_key, ledger_key, record_key
from deputize.shared.runs.record import Claim, published
from deputize.shared.runs.store import RunStore
from deputize.worker.core.emit import Record, RunUpdate
from deputize.worker.redis_record import RedisRecord
from tests.runs.memory_record import MemoryRecord
from tests.worker.claimed import claimed

Contents = tuple[list[str], list[str], dict[str, str], str | None]
"""Events, history, ledger and the field ``progress``."""


@dataclass
class Desk:
    """A record with a claimed run, and what it has of it."""

    record: Record
    claim: Claim
    contents: Callable[[], Awaitable[Contents]]

    async def write(self, update: RunUpdate, fence: str | None = None) -> str:
        done = self.record.write(self.claim.id, fence or self.claim.fence, lambda: update)
        self.record.flush()
        return await done

    def update(self, number: int, **more: object) -> RunUpdate:
        """The update of that number, of one event and one message each."""
        seq = self.claim.seq + number
        event, message = f'{{"n":{number}}}', f'"{number}"'
        return RunUpdate(number, events=[(seq, event)], history=[message], **more)  # pyright: ignore[reportArgumentType]


async def of_redis(store: RunStore, id: str) -> Contents:
    _queued, *events = [published(fields["e"]) for _, fields in await store.redis.xrange(events_key(id))]
    history, ledger = await store.redis.lrange(history_key(id), 0, -1), await store.redis.hgetall(ledger_key(id))
    return events, history, ledger, await store.redis.hget(record_key(id), "progress")


async def of_memory(record: MemoryRecord) -> Contents:
    return record.events, record.history, record.ledger, record.fields.get("progress")


@pytest.fixture(params=["redis", "memory"])
async def desk(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    if request.param == "memory":
        memory = MemoryRecord()
        yield Desk(memory, memory.claim(DelegationRequest(task="do it")), partial(of_memory, memory))
        return
    async with claimed() as (store, pipe, claim):
        yield Desk(RedisRecord(pipe), claim, partial(of_redis, store, claim.id))


async def test_an_update_is_applied_as_a_whole_and_once(desk: Desk) -> None:
    update = desk.update(1, ledger={"call": "started"}, fields={"progress": "{}"})
    for _ in range(2):  # its answer was lost
        assert await desk.write(update) == "written"
    assert await desk.contents() == (['{"n":1}'], ['"1"'], {"call": "started"}, "{}")


async def test_updates_follow_each_other_and_an_empty_call_clears_the_ledger(desk: Desk) -> None:
    await desk.write(desk.update(1, ledger={"call": "started"}))
    await desk.write(desk.update(2, ledger={"": "", "next": "asked"}))
    assert await desk.contents() == (['{"n":1}', '{"n":2}'], ['"1"', '"2"'], {"next": "asked"}, None)


async def test_updates_that_are_sent_again_together_set_nothing_back(desk: Desk) -> None:
    """As after a connection that ended before the answers to all of them."""
    updates = [RunUpdate(n, ledger={"call": f"{n}"}, fields={"progress": f"{n}"}) for n in (1, 2)]
    for again in (updates, updates[:1], updates):
        assert [await desk.write(update) for update in again] == ["written"] * len(again)
        assert await desk.contents() == ([], [], {"call": "2"}, "2")


async def test_an_update_can_grow_until_it_is_sent(desk: Desk) -> None:
    update = desk.update(1)
    done = desk.record.write(desk.claim.id, desk.claim.fence, lambda: update)
    update.fields["progress"] = "grown"
    desk.record.flush()
    assert await done == "written"
    assert (await desk.contents())[3] == "grown"


async def test_a_worker_with_another_fence_writes_nothing(desk: Desk) -> None:
    assert await desk.write(desk.update(1), fence="9:other") == "fenced"
    assert await desk.contents() == ([], [], {}, None)


@pytest.mark.parametrize("number", [2, 3])
async def test_an_update_that_follows_what_the_record_has_lost_is_refused(desk: Desk, number: int) -> None:
    assert await desk.write(desk.update(number)) == "fenced"
    assert await desk.contents() == ([], [], {}, None)


@pytest.mark.parametrize("ending", [{"retention": 60}, {"retry_ms": 1000}])
async def test_the_last_update_releases_the_fence_and_may_be_repeated(desk: Desk, ending: dict[str, int]) -> None:
    last = desk.update(1, **ending)
    for _ in range(2):
        assert await desk.write(last) == "written"
    assert await desk.write(desk.update(2)) == "fenced"
