"""`GET /v1/cost`."""

from __future__ import annotations

import httpx2
import pytest

from deputize.shared.delegation import Usage
from deputize.shared.request import DelegationRequest
from tests.orchestrator.fake_service import FakeService


async def test_the_cost_is_grouped_as_asked(http: httpx2.AsyncClient, service: FakeService) -> None:
    id = (await service.create(DelegationRequest(task="do it", session_id="s"))).delegation.id
    service.finish(id, usage=Usage(input_tokens=7, cost_usd=0.5))
    body = (await http.get("/v1/cost", params={"by": "session", "since": "2020-01-01T00:00:00Z"})).json()
    (item,) = body["items"]
    assert (body["by"], item["key"], item["delegations"], item["unpriced"]) == ("session", "s", 1, 0)
    assert (item["usage"]["costUsd"], body["total"]["usage"]["inputTokens"]) == (0.5, 7)


@pytest.mark.parametrize("asked", [{"by": "labels"}, {"by": ""}, {"since": "soon"}, {"until": "2020-01-01"}])
async def test_what_it_does_not_know_it_refuses(http: httpx2.AsyncClient, asked: dict[str, str]) -> None:
    answer = await http.get("/v1/cost", params=asked)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == f"/query/{next(iter(asked))}"
