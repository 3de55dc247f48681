"""Deadlines that have passed: refused in new requests, and no obstacle to what was accepted in time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from deputize.orchestrator.delegations import Delegations, open_service
from deputize.shared.errors import Invalid, KeyReused
from deputize.shared.ids import new_id
from deputize.shared.request import Attempts, DelegationRequest
from deputize.shared.wire import now
from tests.orchestrator.serving import settings

PASSED = "2020-01-01T00:00:00Z has passed; give a later time, or leave it out"


def past(**more: Any) -> DelegationRequest:
    return DelegationRequest.model_validate({"task": "t", "deadline": "2020-01-01T00:00:00Z", **more})


@pytest.fixture
async def service(redis_url: str) -> AsyncIterator[Delegations]:
    async with open_service(settings(redis_url=redis_url), redis_url) as service:
        yield service


async def accepted(service: Delegations, request: DelegationRequest) -> str:
    """One whose deadline had not passed when it was accepted."""
    return (await service.store.accept([(new_id(), request, request.limits)], 30))[0].id


async def test_a_deadline_that_has_passed_is_refused_where_it_stands(real: httpx2.AsyncClient) -> None:
    answer = await real.post("/v1/delegations", json=past().to_dict())
    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"pointer": "/deadline", "detail": PASSED}]
    later = {"task": "t", "deadline": (now() + timedelta(hours=1)).isoformat()}
    batch = {"requests": [later, {"task": "t", "deadline": 99999}]}
    answer = await real.post("/v1/delegations:batch", json=batch)
    pointers = [each["pointer"] for each in answer.json()["errors"]]
    assert (answer.status_code, pointers) == (422, ["/requests/1/deadline"])
    assert (await real.get("/v1/delegations")).json()["items"] == []
    assert (await real.post("/v1/delegations", json=later)).status_code == 202


async def test_after_its_deadline_a_request_is_found_by_its_idempotency_key(service: Delegations) -> None:
    request = past(idempotency_key="k")
    with pytest.raises(Invalid, match="has passed"):
        await service.create(request)
    id = await accepted(service, request)
    again = await service.create(request)
    assert (again.delegation.id, again.replayed) == (id, True)
    with pytest.raises(KeyReused):
        await service.create(past(idempotency_key="k", context="other"))
    with pytest.raises(Invalid, match="has passed"):
        await service.of("another owner").create(request)


async def test_a_retry_keeps_a_deadline_that_has_passed_unless_it_has_several_attempts(service: Delegations) -> None:
    one = await accepted(service, past(economy=True))
    several = await accepted(service, past(verify=["true"], attempts=Attempts(count=2)))
    for id in (one, several):
        await service.cancel(id)
    assert (await service.retry(one)).delegation.request.deadline == past().deadline
    with pytest.raises(Invalid) as refused:
        await service.retry(several)
    assert refused.value.errors == [{"pointer": "/deadline", "detail": PASSED}]
