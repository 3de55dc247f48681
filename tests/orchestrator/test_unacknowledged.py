"""A service whose replicas of Redis do not acknowledge: callers get 503, and a repeated request does nothing twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deputize.orchestrator.delegations import Delegations, open_service
from deputize.orchestrator.problems import RETRY_AFTER_SECONDS, response_to
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.replicas import Unacknowledged
from deputize.shared.settings import Settings
from tests.processes.replication import Replicated


@pytest.fixture
async def service(replicated: Replicated, tmp_path: Path) -> AsyncIterator[Delegations]:
    settings = Settings.load(environ={}, redis_url=replicated.url, redis={"replicas": 1}, home=tmp_path)
    async with open_service(settings, replicated.url) as service:
        assert service.store.replicas
        service.store.replicas.seconds = 0.1
        yield service


async def test_without_a_key_it_is_withdrawn_and_with_one_found_again(
    service: Delegations, replicated: Replicated
) -> None:
    keyed, other = DelegationRequest(task="do it", idempotency_key="k"), DelegationRequest(task="do it")
    (replica,) = replicated.replicas
    replica.lag()
    for request in (keyed, other, keyed):
        with pytest.raises(Unacknowledged):
            await service.create(request)
    assert sorted(each.status for each in (await service.list()).items) == ["cancelled", "queued"]
    replica.follow(replicated.primary)
    again = await service.create(keyed)
    assert (again.replayed, again.delegation.status) == (True, "queued")


def test_callers_get_a_problem_with_the_time_to_try_again() -> None:
    response = response_to(Unacknowledged("0 of 1"))
    assert (response.status_code, response.headers["Retry-After"]) == (503, str(RETRY_AFTER_SECONDS))
    assert b'"urn:deputize:unacknowledged"' in response.body
