"""What finished delegations keep on disk is shown, and removed by age or size."""

from __future__ import annotations

import pytest

from deputize.shared.request import DelegationRequest
from tests.orchestrator.command_line import deputize
from tests.orchestrator.fake_service import FakeService

MB = 10**6


async def finished(service: FakeService, disk: int | None) -> str:
    id = (await service.create(DelegationRequest(task="x"))).delegation.id
    service.finish(id, summary="Done.")
    service.runs[id] = service.runs[id].model_copy(update={"disk_bytes": disk})
    return id


async def test_list_has_the_total_and_show_the_size(url: str, service: FakeService) -> None:
    ids = [await finished(service, disk) for disk in (None, 0, 40 * MB, 1600 * MB)]
    said = await deputize("list", "--limit", "1", DEPUTIZE_URL=url)
    assert len(said.out.splitlines()) == 1
    assert said.err == (
        "2 finished delegations keep 1.6 GB on disk (at most 34 GB); `deputize prune --keep-bytes SIZE` removes the "
        "oldest\n"
    )
    shown = [(await deputize("show", id, DEPUTIZE_URL=url)).out.splitlines() for id in ids]
    assert [[line for line in lines if line.startswith("on disk")] for lines in shown] == [
        [],
        ["on disk    its files were removed"],
        ["on disk    40 MB"],
        ["on disk    1.6 GB"],
    ]


async def test_prune_by_size_removes_the_oldest_and_a_dry_run_nothing(url: str, service: FakeService) -> None:
    ids = [await finished(service, 40 * MB) for _ in range(3)]
    dry = await deputize("prune", "--keep-bytes", "100MB", "--dry-run", DEPUTIZE_URL=url)
    assert dry.out == f"1 delegation would be removed, 40 MB on disk\n  {ids[0]}\n"
    assert [*service.runs] == ids
    done = await deputize("prune", "--keep-bytes", "0.05 GB", DEPUTIZE_URL=url)
    assert done.out == "2 delegations removed, 80 MB on disk\n"
    assert [*service.runs] == ids[2:]


@pytest.mark.parametrize(
    ("given", "removed"), [("0", 1), ("0s", 1), ("1d", 0), ("15min", 0), ("2w", 0), ("1.5h", 0), ("0.0", 1)]
)
async def test_an_age_is_seconds_or_has_a_unit(url: str, service: FakeService, given: str, removed: int) -> None:
    await finished(service, None)
    plural = "" if removed == 1 else "s"
    assert (
        await deputize("prune", "--older-than", given, DEPUTIZE_URL=url)
    ).out == f"{removed} delegation{plural} removed\n"


@pytest.mark.parametrize("given", ["1y", "d", "-1d", "1 d 2 h", "nan", "inf", "1e400", ""])
@pytest.mark.parametrize("option", ["--older-than", "--keep-bytes"])
async def test_another_amount_is_refused_by_the_options_name(
    url: str, service: FakeService, option: str, given: str
) -> None:
    await finished(service, MB)
    said = await deputize("prune", option, given, DEPUTIZE_URL=url)
    assert (said.code, option in said.err, len(service.runs)) == (2, True, 1)
