"""Runs of 51 owners share the places of the workers, whoever has sent how many."""

from __future__ import annotations

from collections import Counter

from deputize.shared.connection import Pipe, connect
from deputize.shared.runs.store import WRITING, RunStore
from tests.runs.many_owners import jain, order_of_starts

OWNERS = [f"owner-{number}" for number in range(51)]


async def starts(redis_url: str, counts: dict[str, int]) -> list[str]:
    async with connect(redis_url) as redis, connect(redis_url, timeout=None) as writing, Pipe(writing, WRITING) as pipe:
        return await order_of_starts(RunStore(redis, 60), pipe, counts)


async def test_no_owner_waits_for_the_thousand_runs_of_another(redis_url: str) -> None:
    found = await starts(redis_url, {owner: 1000 if owner == OWNERS[0] else 2 for owner in OWNERS})
    assert len(found) == 1100
    assert Counter(found[:103]) == dict.fromkeys(OWNERS[1:], 2) | {OWNERS[0]: 3}


async def test_owners_with_as_many_runs_have_as_many_starts_at_any_time(redis_url: str) -> None:
    found = await starts(redis_url, dict.fromkeys(OWNERS, 20))
    for moment in range(51, len(found), 51):
        shares = Counter(found[:moment])
        assert jain([shares[owner] for owner in OWNERS]) >= 0.95
