"""A merge with real processes: its worker is killed in the search, and another one begins it anew and ends it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.compound_requests import MergeRequest
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet
from tests.waiting import until
from tests.worker.verification.held import grounds_in

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

CHECK: dict[str, Any] = {
    "kind": "command",
    "run": "until [ -e go ]; do sleep 0.05; done; [ ! -e late ] || cat used",
    "timeoutSeconds": 100,
}
"""Fails where one result uses what another one removes; waits until the test lets it go on."""


@pytest.mark.costly
async def test_a_killed_worker_is_replaced_and_the_pair_is_named(fleet: Fleet, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "used").write_text("1\n")
    await fleet.start("1")

    async def changing(*calls: dict[str, Any]) -> str:
        id = await fleet.hand_over(model=script(tmp_path, [*calls], [say("done")]), workspace=str(project))
        assert (await fleet.result(id)).success
        return id

    removing, using, harmless = await asyncio.gather(
        changing(call("bash", command="rm used")),
        changing(call("write_file", path="late", content="uses it\n")),
        changing(call("write_file", path="other", content="nothing\n")),
    )
    wanted = MergeRequest.model_validate({"ids": [removing, using, harmless], "verify": [CHECK]})
    report = await fleet.service.merge(wanted)
    assert report.delegation is not None
    id, root = report.delegation.id, fleet.settings.workspaces
    await until(lambda: bool(grounds_in(root, id, "base")), 60)
    await fleet.kill("1")
    await fleet.start("2")

    async def ended() -> bool:
        for ground in grounds_in(root, id):
            with suppress(FileNotFoundError):  # removed meanwhile
                (ground / "go").touch()
        return (await fleet.service.get(id)).result is not None

    await until(ended, 90)
    result = await fleet.result(id)
    assert (result.attempts, result.verification.verdict, result.success) == (2, "refuted", False)
    assert result.merge is not None
    assert [each.ids for each in result.merge.incompatible] == [[removing, using]]
    assert sorted(result.files_modified) == ["late", "other", "used"]
    assert [*root.glob(f"{id}.ground-*")] == []
