"""A hundred delegations in a storm: every one ends well, no effect is doubled, nothing is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.redis_server import RedisProcess
from tests.system.storm import rage

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(420)]


@pytest.mark.requirement("P-16", "P-14")
async def test_a_hundred_delegations_survive_a_storm(redis_process: RedisProcess, tmp_path: Path) -> None:
    storm = await rage(
        redis_process, tmp_path, delegations=100, workers=4, seconds=14, kill_every=1, restarts=2, kills=12
    )
    assert storm.wrong == []
    assert (len(storm.attempts), storm.restarts) == (100, 2)
    assert storm.kills >= 12
