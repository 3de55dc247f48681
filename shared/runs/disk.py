"""What finished delegations keep: the size of their files on disk, and the removal of their records."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from datetime import datetime
from math import inf
from typing import Any

from ..connection import Script, publish
from ..delegation import Status
from ..disk_usage import DiskUsage, Kept, Pruned
from ..wire import now
from .cost import PAGE, fields_of_records
from .keys import BILLS, INDEX, LEASES, PRUNE, PRUNED, keys_of, record_key
from .record import AFTER, CONTINUES, DISK

REMOVED, PRUNING = map(Script, ("removed", "prune"))
PRUNED_SECONDS, MOST_PRUNED = 7 * 24 * 3600, 100_000
"""How long a pruned delegation is listed for workers that start later, and how many are. Others' files go by age."""
RECORD_PARTS = dict(zip(("record_head", "record_tail"), record_key("\0").split("\0"), strict=True))
"""A record's key before and after its id, for scripts that look up ids themselves."""


async def disk_usage(redis: Any, most: int) -> DiskUsage:
    """Returns the sum over all finished delegations whose records exist."""
    return DiskUsage.of([kept async for kept in _finished(redis)], most)


async def prune(redis: Any, older_than: float, keep_bytes: int | None = None, *, dry_run: bool = False) -> Pruned:
    """Removes the records of delegations that ended that many seconds ago; asks workers to remove the files.

    With ``keep_bytes`` only as many of them, those that ended first, as it takes until no more than that is kept. What
    an unfinished delegation continues or waits for stays.
    """
    found = [kept async for kept in _finished(redis)]
    gone = chosen(found, older_than, keep_bytes, await held(redis) | await held(redis, AFTER))
    if not dry_run:
        # The janitors remove files by age, too, but for some of them only the ids of this choice are right.
        age = older_than if keep_bytes is None else inf
        await _remove(redis, gone, age)
        if keep_bytes is None:
            await publish(redis, PRUNE, str(age))
    return Pruned.of(gone, dry_run=dry_run)


def chosen(found: Sequence[Kept], older_than: float, keep_bytes: int | None, held: Collection[str] = ()) -> list[Kept]:
    """Returns what ``prune`` removes of the finished delegations, those that ended first at the beginning."""
    latest, sum_kept = now().timestamp() - older_than, sum(kept.disk for kept in found)
    chosen: list[Kept] = []
    for kept in sorted(found, key=lambda kept: (kept.finished, kept.id)):
        if keep_bytes is not None and sum_kept <= keep_bytes:
            break
        if kept.id not in held and datetime.fromisoformat(kept.finished).timestamp() <= latest:
            chosen.append(kept)
            sum_kept -= kept.disk
    return chosen


async def _remove(redis: Any, gone: Sequence[Kept], age: float) -> None:
    for start in range(0, len(gone), PAGE):
        ids = [kept.id for kept in gone[start : start + PAGE]]
        keys = [PRUNED, *(key for id in ids for key in keys_of(id))]
        await PRUNING.run(redis, keys, {"ids": ids, "seconds": PRUNED_SECONDS, "most": MOST_PRUNED})
        # Workers of version 0.1.0 do not read the list.
        await publish(redis, PRUNE, " ".join([str(age), *ids]))
        await forget(redis, ids)


async def forget(redis: Any, ids: Sequence[str], sets: Sequence[str] = ()) -> None:
    """Removes ids without a record from the index, from the bills and from these sets."""
    async with redis.pipeline() as pipeline:
        for key in (INDEX, LEASES, *sets):
            pipeline.zrem(key, *ids)
        pipeline.hdel(BILLS, *ids)
        await pipeline.execute()


async def held(redis: Any, field: str = CONTINUES) -> set[str]:
    """Returns what unfinished delegations need: the ids that they continue or wait for, or their uploads."""
    records = await fields_of_records(redis, await redis.zrange(LEASES, 0, -1), field)
    return {each for (needed,) in records if needed for each in needed.split()}


async def sizes_on_disk(redis: Any, ids: Sequence[str]) -> dict[str, int]:
    """Returns the recorded sizes of those that have one."""
    found = await fields_of_records(redis, ids, DISK)
    return {id: int(size) for id, (size,) in zip(ids, found, strict=True) if size is not None}


async def pruned(redis: Any, ids: Sequence[str]) -> set[str]:
    """Returns those of ``ids`` that are listed as pruned: their records are not missing for another reason."""
    scores = await redis.zmscore(PRUNED, ids) if ids else []
    return {id for id, score in zip(ids, scores, strict=True) if score is not None}


async def note_removed(redis: Any, id: str) -> None:
    """Records that the files of a delegation are gone."""
    await REMOVED.run(redis, [record_key(id)], {"field": DISK})


async def _finished(redis: Any) -> AsyncGenerator[Kept]:
    top = "+"
    while ids := await redis.zrevrangebylex(INDEX, top, "-", 0, PAGE):
        top = f"({ids[-1]}"
        records = await fields_of_records(redis, ids, "status", "finished", DISK)
        if expired := [id for id, (status, *_) in zip(ids, records, strict=True) if status is None]:
            await forget(redis, expired)
        for id, (status, finished, disk) in zip(ids, records, strict=True):
            if status and Status(status).finished:
                yield Kept(id, finished, int(disk or 0))
