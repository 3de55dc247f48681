"""The fleet, health, and what the API's process loads."""

from __future__ import annotations

import httpx2

from deputize.shared.fleet import own_version
from deputize.shared.runs.capacity import EndpointCapacity
from tests.orchestrator.fake_service import READ_FILE, FakeService, worker_card


async def test_tools_and_workers_are_what_the_fleet_announced(http: httpx2.AsyncClient, service: FakeService) -> None:
    service.fleet = [worker_card(sandbox="no user namespaces")]
    assert (await http.get("/v1/workers")).json() == [service.fleet[0].to_dict()]
    assert (await http.get("/v1/tools")).json() == [READ_FILE.to_dict()]


async def test_the_capacity_of_endpoints_is_what_redis_has(http: httpx2.AsyncClient, service: FakeService) -> None:
    service.endpoints = [EndpointCapacity(endpoint="3fa2", model="claude-sonnet-5-5", rate=4, waiting=2)]
    assert (await http.get("/v1/capacity")).json() == [service.endpoints[0].to_dict()]


async def test_it_is_ready_when_redis_answers_and_a_worker_is_there(
    http: httpx2.AsyncClient, service: FakeService
) -> None:
    service.fleet = [worker_card()]
    answer = await http.get("/readyz")
    ready = {"status": "ready", "workers": 1, "version": own_version()}
    assert (answer.status_code, answer.json()) == (200, ready)
    assert answer.headers["x-deputize-version"] == own_version()


async def test_without_workers_it_is_alive_but_not_ready(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/readyz")
    assert answer.status_code == 503
    assert "deputize worker" in answer.json()["detail"]
    assert (await http.get("/livez")).status_code == 200
