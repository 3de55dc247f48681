"""Honest runs on real packages are verified by the packages' own tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.runs.bench import Bench
from tests.verdict.real_packages import ROWS, RealPackage
from tests.verdict.strangers import Kits

TRIED = 5
"""The first rows, of a package each: all of them take five minutes."""
SAMPLE = "iniconfig"
"""The one that takes least."""


@pytest.mark.asyncio(loop_scope="package")
@pytest.mark.long
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=str(row), marks=[pytest.mark.thorough] * (not str(row).startswith(SAMPLE)))
        for row in ROWS[:TRIED]
    ],
)
@pytest.mark.costly
async def test_a_mended_package_is_verified(
    row: RealPackage, worker: Bench, kit: Path, redis_url: str, tmp_path: Path
) -> None:
    try:
        stranger = row.stranger()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"{row.package} cannot be downloaded: {error.stderr.decode(errors='replace')[-200:]}")
    result = await stranger.run(worker, tmp_path, Kits(kit, kit))
    assert result.verification.verdict == "verified", result.verification
    assert result.success


def test_there_are_thirty_runs_on_twelve_packages() -> None:
    assert len(ROWS) >= 30
    assert len({row.package for row in ROWS}) >= 12
