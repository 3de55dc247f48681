"""A run that fills the small disk of its stack by its record harms only itself; tests/system has those by files."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.system.disk_filler import filled

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounting a small disk is root's"),
]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["artifacts", "tasks"])
def test_whatever_a_run_fills_the_disk_with_no_other_run_and_no_store_ends(kind: str) -> None:
    (found,) = filled(kind).values()  # the others: `python -m tests.system.disk_filler`
    assert (found["honest"], found["starts"]) == (["completed", 1], 1), found
    assert found["hostile"] == ["budget", 1], found
    assert "the disk of all records takes only" in found["errors"][0]
