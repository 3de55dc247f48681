"""Many delegations in a storm: every one ends well, no effect is doubled, nothing is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.redis_server import RedisProcess
from tests.system.storm import rage

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(420)]


@pytest.mark.costly
@pytest.mark.requirement("P-16", "P-14")
async def test_delegations_survive_a_storm(redis_process: RedisProcess, tmp_path: Path, is_thorough: bool) -> None:
    many, seconds, kills = (100, 14, 12) if is_thorough else (40, 6, 5)
    storm = await rage(
        redis_process, tmp_path, delegations=many, workers=4, seconds=seconds, kill_every=1, restarts=2, kills=kills
    )
    assert storm.wrong == []
    assert (len(storm.attempts), storm.restarts) == (many, 2)
    assert storm.kills >= kills
