"""The workers' announcements: who is there, who has gone, and which tools the fleet has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from fakeredis import FakeAsyncRedis

from deputize.shared.fleet import Fleet, PreparedEnvironment, ToolCard, WorkerCard
from deputize.shared.runs.keys import WORKERS, worker_key
from deputize.shared.wire import now


def worker(name: str) -> WorkerCard:
    return WorkerCard(
        name=name, pid=7, started_at=now(), running=1, concurrency=10, model="scripted", sandbox=None, tools=["b", "a"]
    )


def tool(name: str) -> ToolCard:
    return ToolCard(name=name, description="Does it.", kind="read", effect="pure", parameters={})


@pytest.fixture
async def redis() -> AsyncIterator[FakeAsyncRedis]:
    async with FakeAsyncRedis(decode_responses=True) as client:
        yield client


async def test_who_is_there_is_listed_until_it_leaves(redis: FakeAsyncRedis) -> None:
    fleet = Fleet(redis)
    assert (await fleet.workers(), await fleet.tools()) == ([], [])
    for name in ("two", "one"):
        await fleet.announce(worker(name), [tool("b"), tool("a")])
    assert [card.name for card in await fleet.workers()] == ["one", "two"]
    await fleet.leave("one")
    assert sorted(await redis.keys("deputize:worker*")) == sorted([WORKERS, worker_key("two")])
    assert await redis.zrange(WORKERS, 0, -1) == ["two"]
    assert [card.name for card in await fleet.workers()] == ["two"]
    assert [card.name for card in await fleet.tools()] == ["a", "b"]


async def test_a_worker_that_has_not_announced_itself_for_long_is_not_listed(redis: FakeAsyncRedis) -> None:
    fleet = Fleet(redis)
    await fleet.announce(worker("gone"), [])
    await redis.zadd(WORKERS, {"gone": now().timestamp() - 1})
    assert await fleet.workers() == []
    await fleet.announce(worker("gone"), [])
    await redis.delete(worker_key("gone"))
    assert await fleet.workers() == []


async def test_a_worker_without_tools_takes_none_away(redis: FakeAsyncRedis) -> None:
    fleet = Fleet(redis)
    await fleet.announce(worker("one"), [tool("a")])
    await fleet.announce(worker("two"), [])
    assert [card.name for card in await fleet.tools()] == ["a"]


async def test_what_workers_have_prepared_is_listed_once_with_all_their_names(redis: FakeAsyncRedis) -> None:
    fleet, at = Fleet(redis), datetime(2026, 1, 1, tzinfo=UTC)
    old = PreparedEnvironment(environment="a", key="a-1", bytes=1, seconds=1, prepared_at=at, used_at=at)
    new = old.model_copy(update={"used_at": at + timedelta(hours=1)})
    other = old.model_copy(update={"key": "b-1", "used_at": at + timedelta(minutes=1)})
    for name, found in (("one", [old, other]), ("two", [new])):
        await fleet.announce(worker(name).model_copy(update={"environments": found}), [])
    listed = await fleet.environments()
    assert [(each.key, each.workers, each.used_at) for each in listed] == [
        ("a-1", ["one", "two"], new.used_at),
        ("b-1", ["one"], other.used_at),
    ]
