"""Continuing and retrying over HTTP: the key in the header or in the body, and a retry without a body."""

from __future__ import annotations

import httpx2
import pytest

from deputize.shared.request import DelegationRequest
from tests.orchestrator.fake_service import FakeService

CONTINUE = {"text": "now also this"}


async def finished(service: FakeService) -> str:
    id = (await service.create(DelegationRequest(task="t"))).delegation.id
    service.finish(id)
    return id


@pytest.mark.parametrize(("verb", "body"), [("continue", CONTINUE), ("retry", None), ("retry", {})])
async def test_the_same_key_returns_the_first_one_again(
    http: httpx2.AsyncClient, service: FakeService, verb: str, body: dict[str, object] | None
) -> None:
    id = await finished(service)
    path, headers = f"/v1/delegations/{id}/{verb}", {"Idempotency-Key": "k"}
    first = await http.post(path, json=body, headers=headers)
    again = await http.post(path, json=(body or {}) | {"idempotencyKey": "k"})
    assert (first.status_code, again.status_code) == (202, 200), first.text
    assert again.headers["idempotent-replayed"] == "true"
    assert first.json()["id"] == again.json()["id"] != id
    assert first.headers["location"] == f"/v1/delegations/{first.json()['id']}"
    other = await http.post(path, json=(body or {}) | {"idempotencyKey": "other"}, headers=headers)
    assert (other.status_code, other.json()["errors"][0]["pointer"]) == (422, "/idempotencyKey")


async def test_a_body_of_another_kind_or_with_unknown_fields_is_refused(
    http: httpx2.AsyncClient, service: FakeService
) -> None:
    id = await finished(service)
    assert (await http.post(f"/v1/delegations/{id}/retry", content="from=2")).status_code == 415
    assert (await http.post(f"/v1/delegations/{id}/retry", json={"turn": 2})).status_code == 422
    assert len(service.runs) == 1
