"""Removing records: what the index names although nothing is left of it goes, too."""

from __future__ import annotations

from fakeredis import FakeAsyncRedis

from deputize.shared.ids import new_id
from deputize.shared.runs.disk import prune
from deputize.shared.runs.keys import INDEX


async def test_an_id_without_a_record_leaves_the_index_and_is_not_counted() -> None:
    redis = FakeAsyncRedis(decode_responses=True)
    await redis.zadd(INDEX, {new_id(): 0})
    assert (await prune(redis, 3600)).removed == 0
    assert await redis.zcard(INDEX) == 0
