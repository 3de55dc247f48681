"""A service that nothing is submitted to names the accepted delegations that a failover has lost, too."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from deputize.orchestrator.delegations import open_service
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import record_key
from deputize.shared.settings import Settings
from tests.processes.replication import Replicated
from tests.waiting import until


@pytest.mark.parametrize("replicated", [2], indirect=True)
async def test_a_lost_delegation_is_named_although_nothing_is_written_afterwards(
    replicated: Replicated, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings.model_validate({"home": tmp_path, "redis": {"replicas": 1}, "redis_url": replicated.url})
    behind = replicated.replicas[1]
    async with open_service(settings, replicated.url) as service:
        kept = (await service.create(DelegationRequest(task="a", model="scripted"))).delegation.id
        await until(lambda: behind.client.exists(record_key(kept)))
        behind.lag()
        lost = (await service.create(DelegationRequest(task="b", model="scripted"))).delegation.id
        replicated.fail_over(behind)
        await until(lambda: f"the accepted delegation of {record_key(lost)} is lost" in caplog.text)
        (loss,) = await service.losses()
        assert (loss.writes, loss.delegations) == (1, 1)
        assert record_key(kept) not in caplog.text
        assert [each.levelno for each in caplog.records if "has lost" in each.message] == [logging.ERROR]
