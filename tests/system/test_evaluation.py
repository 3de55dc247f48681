"""An evaluation goes on through kills of its workers and of the command, and counts each run once."""

from __future__ import annotations

import pytest

from tests.benchmarks.evaluation import evaluated

pytestmark = [pytest.mark.system, pytest.mark.costly, pytest.mark.timeout(240)]
SEED = 0


async def test_each_run_counts_once_whatever_is_killed_meanwhile() -> None:
    """A sample of what `python -m tests.benchmarks evaluation` does with 200 tasks of five runs."""
    wrong, _ = await evaluated(tasks=10, runs=3, seed=SEED, kills=2, breaks=1, slots=3)
    assert wrong == [], f"seed {SEED}"
