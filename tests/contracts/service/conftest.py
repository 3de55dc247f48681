"""Every test of this folder asks the service and the fake one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deputize.orchestrator.delegations import Delegations
from tests.contracts.service.desks import Desk, FakeDesk, real_desk
from tests.orchestrator.fake_service import FakeService


@pytest.fixture(params=["fake", "real"])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    if request.param == "fake":
        yield FakeDesk(FakeService())
        return
    async with real_desk(request.getfixturevalue("redis_url"), tmp_path) as desk:
        yield desk


@pytest.fixture
def service(desk: Desk) -> Delegations:
    return desk.service
