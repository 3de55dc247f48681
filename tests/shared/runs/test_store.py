"""The store beside its contract (``tests/contracts/store/``): what happens between two of its round trips."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis
from redis.exceptions import ReadOnlyError

from deputize.shared.delegation import Status
from deputize.shared.errors import NotFound
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.cost import cost_report
from deputize.shared.runs.keys import filed_key, record_key
from deputize.shared.runs.record_lists import FILED_AT_A_TIME, RecordLists
from deputize.shared.runs.store import RunStore


class Forgetful(FakeAsyncRedis):
    """Loses a record as soon as it was looked at, as a record does whose time is over."""

    async def hmget(self, name: Any, keys: Any, *args: Any) -> Any:
        found = await super().hmget(name, keys, *args)
        await self.delete(name)
        return found


async def test_what_is_removed_while_it_is_cancelled_is_not_found() -> None:
    async with Forgetful(decode_responses=True) as redis:
        store, request = RunStore(redis, 60), DelegationRequest(task="t")
        id = (await store.accept([(new_id(), request, request.limits)], 60))[0].id
        with pytest.raises(NotFound):
            await store.cancel(id)


class Failing(FakeAsyncRedis):
    """Is away for one transaction, as in a failover."""

    is_away = True

    def pipeline(self, *args: Any, **options: Any) -> Any:
        if self.is_away:
            self.is_away = False
            raise ReadOnlyError("You can't write against a read only replica.")
        return super().pipeline(*args, **options)


async def test_what_a_run_had_before_is_read_however_long_redis_is_away() -> None:
    async with Failing(decode_responses=True) as redis:
        store, request = RunStore(redis, 60), DelegationRequest(task="t")
        id = (await store.accept([(new_id(), request, request.limits)], 60))[0].id
        await redis.hset(record_key(id), "attempt", 1)
        claim = await store.claim(id, "token", "worker-1", 60)
        assert claim
        assert (claim.attempt, redis.is_away) == (2, False)


class Late(FakeAsyncRedis):
    """A run ends as soon as one of the places was read where it may be found."""

    ends: Callable[[], Awaitable[object]] | None = None

    async def _read(self, found: Any) -> Any:
        if self.ends is not None:
            ends, self.ends = self.ends, None
            await ends()
        return found

    async def zrange(self, *args: Any, **options: Any) -> Any:
        return await self._read(await super().zrange(*args, **options))

    async def zrevrangebylex(self, *args: Any, **options: Any) -> Any:
        return await self._read(await super().zrevrangebylex(*args, **options))

    async def hvals(self, *args: Any, **options: Any) -> Any:
        return await self._read(await super().hvals(*args, **options))


async def test_a_run_that_ends_while_it_is_looked_for_is_found_once() -> None:
    async with Late(decode_responses=True) as redis:
        store, request = RunStore(redis, 60), DelegationRequest(task="t", session_id="s")
        ids = [(await store.accept([(new_id(), request, request.limits)], 60))[0].id for _ in range(2)]
        redis.ends = partial(store.cancel, ids[0])
        page = await RecordLists(store).list(status=None, session="s", labels={}, limit=10, cursor=None)
        assert [(item.id, item.status) for item in page.items] == [(ids[1], "queued"), (ids[0], "cancelled")]
        redis.ends = partial(store.cancel, ids[1])
        assert (await cost_report(redis, "day", None)).total.delegations == 2
        assert redis.ends is None


async def test_a_list_of_waiting_ones_leaves_out_one_that_ends_while_it_is_looked_for() -> None:
    async with Late(decode_responses=True) as redis:
        store, request = RunStore(redis, 60), DelegationRequest(task="t")
        id = (await store.accept([(new_id(), request, request.limits)], 60))[0].id
        redis.ends = partial(store.cancel, id)
        assert (
            await RecordLists(store).list(status=Status.QUEUED, session=None, labels={}, limit=10, cursor=None)
        ).items == []


class Noted(FakeAsyncRedis):
    """Notes which sets are read."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.read = list[str]()

    async def zrevrangebylex(self, name: str, *args: Any, **options: Any) -> Any:
        self.read.append(name)
        return await super().zrevrangebylex(name, *args, **options)


async def test_of_several_sets_the_smallest_is_read_until_enough_is_common_to_all() -> None:
    async with Noted(decode_responses=True) as redis:
        store, request = RunStore(redis, 60), DelegationRequest(task="t", labels={"a": "1"})
        id = (await store.accept([(new_id(), request, request.limits)], 60))[0].id
        await store.cancel(id)
        small, large = filed_key("label:a:1"), filed_key("cancelled")
        await redis.zadd(small, dict.fromkeys([new_id() for _ in range(FILED_AT_A_TIME)], 0))
        await redis.zadd(large, dict.fromkeys([new_id() for _ in range(FILED_AT_A_TIME + 1)], 0))
        page = await RecordLists(store).list(
            status=Status.CANCELLED, session=None, labels={"a": "1"}, limit=1, cursor=None
        )
        assert [item.id for item in page.items] == [id]
        assert {*redis.read} == {small}
        # Whose ids are in one of the sets only are neither read nor, having no record, forgotten.
        assert await redis.zcard(small) == FILED_AT_A_TIME + 1
