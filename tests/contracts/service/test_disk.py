"""What finished delegations keep on disk, and what is removed of it: the same for the service and the fake one."""

from __future__ import annotations

import pytest

from deputize.orchestrator.delegations import Delegations
from tests.contracts.service.desks import Desk, accepted, listed

MB = 10**6


@pytest.fixture
async def ids(desk: Desk) -> list[str]:
    """Three that ended in the order of their sizes, and one that waits."""
    ids = [await accepted(desk.service, task) for task in ("one", "two", "three", "waits")]
    for number, id in enumerate(ids[:3], 1):
        await desk.finish(id, disk=number * MB)
    return ids


async def test_the_sum_is_that_of_all_finished_ones(service: Delegations, ids: list[str]) -> None:
    usage = await service.disk()
    assert (usage.kept_bytes, usage.delegations, usage.max_kept_bytes) == (6 * MB, 3, 32 << 30)
    assert [(await service.get(id)).disk_bytes for id in ids] == [MB, 2 * MB, 3 * MB, None]


@pytest.mark.parametrize(
    ("keep", "older_than", "gone"),
    [(6 * MB, None, 0), (6 * MB - 1, None, 1), (5 * MB, None, 1), (4 * MB, 0, 2), (0, None, 3), (0, 3600, 0)],
)
async def test_what_ended_first_goes_until_no_more_than_that_is_kept(
    service: Delegations, ids: list[str], keep: int, older_than: float | None, gone: int
) -> None:
    would = await service.prune(older_than, keep, dry_run=True)
    assert (would.removed, would.ids, would.dry_run) == (gone, ids[:gone], True)
    assert len(await listed(service)) == 4
    did = await service.prune(older_than, keep)
    assert did == would.model_copy(update={"dry_run": False})
    assert did.freed_bytes == sum(range(1, gone + 1)) * MB
    assert await listed(service) == ["waits", "three", "two", "one"][: 4 - gone]
    assert (await service.disk()).delegations == 3 - gone
