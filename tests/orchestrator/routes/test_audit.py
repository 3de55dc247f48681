"""The audit log: an entry for every request that changes something or is refused, and nothing secret in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deputize.orchestrator.auth import SAFE_METHODS
from deputize.orchestrator.operations import ROUTES
from deputize.orchestrator.scopes import MCP_PATH
from deputize.shared.errors import Unavailable
from deputize.shared.facts import GitFacts
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.schedule import Schedule
from tests.orchestrator.access_tokens import MAIN, bearer, entry, secret_of, serving, write
from tests.orchestrator.bodies import BODIES
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.worker.workspace.archives import zipped

ANSWER = "/v1/permissions/{permissionId}"
"""Needs a run that asks: ``test_permissions.py`` has its entry."""
CHANGING = [each for each in ROUTES if each[0] not in SAFE_METHODS and each[1] not in (MCP_PATH, ANSWER)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(
        tmp_path / "tokens.toml", entry("ci", "submit", "read", "admin", "all"), entry("reader", "read", "all")
    )


@pytest.mark.parametrize(("method", "route"), CHANGING)
async def test_each_changing_route_has_an_entry(service: FakeService, path: Path, method: str, route: str) -> None:
    service.workspaces = path.parent / "workspaces"
    id = (await service.create(DelegationRequest(task="first"))).delegation.id
    if not route.endswith(("/resume", "/messages")):
        service.finish(id, git=GitFacts(base="a" * 40))
    service.notified[id] = []
    service.fleet = [worker_card(name="one")]
    service.planned["one"] = Schedule(name="one", cron="* * * * *", zone="UTC")
    async with serving(service, path) as http:
        sent = {"X-Request-ID": "req-1", **bearer("ci")}
        body = json.loads(json.dumps(BODIES.get(route, {})).replace("{id}", id))
        there = route.replace("{id}", id).replace("{name}", "one")
        sending: dict[str, Any] = {"content": zipped()} if route == "/v1/uploads" else {"json": body}
        answer = await http.request(method, there, headers=sent, **sending)
        assert answer.is_success, answer.text
        body = answer.json() if answer.content else {}
        (found,) = service.log
        listed = (await http.get("/v1/audit", headers=bearer("ci"))).json()
    assert listed == {"items": [found.to_dict()], "nextCursor": None}
    body = body.get("delegation") or body  # of a merge
    made = [body["id"]] if "id" in body else body.get("ids") or [each["id"] for each in body.get("items", [])]
    assert found.delegation_ids == list(dict.fromkeys(([id] if "{id}" in f"{route}{BODIES.get(route)}" else []) + made))
    assert (found.token, found.client, found.method, found.route) == ("ci", "127.0.0.1", method, route)
    assert (found.status, found.request_id, found.tool) == (answer.status_code, "req-1", None)


async def test_neither_a_token_nor_a_body_is_in_it(service: FakeService, path: Path) -> None:
    async with serving(service, path) as http:
        for token in (secret_of("ci"), MAIN, "SECRET-wrong"):
            headers = {"Authorization": f"Bearer {token}", "X-SECRET": "SECRET"}
            await http.post("/v1/delegations?SECRET=SECRET", json=BODIES["/v1/delegations"], headers=headers)
            await http.post("/v1/delegations", json={"SECRET": "SECRET"}, headers=headers)
    entries = [each.to_json() for each in service.log]
    assert [each.status for each in service.log] == [202, 422, 202, 422, 401, 401]
    assert [each for each in entries if "SECRET" in each or "secret" in each or MAIN in each] == []


async def test_what_only_reads_has_none(service: FakeService, path: Path) -> None:
    async with serving(service, path) as http:
        for route in ("/v1/delegations", "/v1/tools", "/v1/audit", "/livez", "/openapi.json", "/v1/delegations/dlg_x"):
            await http.get(route, headers=bearer("ci"))
        await http.head("/v1/tools", headers=bearer("ci"))
        await http.post("/v1/nothing", headers=bearer("ci"))
        await http.put("/v1/tools", headers=bearer("ci"))
        dry = await http.post("/v1/delegations:prune", json={"dryRun": True}, headers=bearer("ci"))
    assert dry.status_code == 200
    assert [(each.route, each.delegation_ids) for each in service.log] == [("/v1/delegations:prune", [])]


async def test_every_refused_request_has_one(service: FakeService, path: Path) -> None:
    id = new_id()
    async with serving(service, path) as http:
        await http.get("/v1/tools")
        await http.head(f"/v1/delegations/{id}", headers=bearer("wrong"))
        await http.post(f"/v1/delegations/{id}/cancel", headers=bearer("reader"))
        await http.get("/v1/audit", headers=bearer("reader"))
        await http.post("/mcp", json={}, headers=bearer("wrong"))
        await http.post("/v1/delegations", headers={"Origin": "https://evil.example", **bearer("ci")})
    assert [(each.status, each.token, each.method, each.route) for each in service.log] == [
        (401, None, "GET", "/v1/tools"),
        (401, None, "HEAD", "/v1/delegations/{id}"),
        (403, "reader", "POST", "/v1/delegations/{id}/cancel"),
        (403, "reader", "GET", "/v1/audit"),
        (401, None, "POST", "/mcp"),
        (403, None, "POST", "/v1/delegations"),
    ]
    assert [each.delegation_ids for each in service.log] == [[], [id], [id], [], [], []]


async def test_without_tokens_the_entry_names_none(http: httpx2.AsyncClient, service: FakeService) -> None:
    await http.post("/v1/delegations", json={"task": "x"})
    assert [(each.token, each.status) for each in service.log] == [(None, 202)]


async def test_a_log_that_cannot_be_written_holds_up_no_answer(service: FakeService, path: Path) -> None:
    service.away = Unavailable("Redis does not answer")
    async with serving(service, path) as http:
        assert (await http.post("/v1/delegations", json={"task": "x"}, headers=bearer("ci"))).status_code == 503
        assert (await http.get("/v1/tools")).status_code == 401
    assert service.log == []


@pytest.mark.parametrize("asked", [{"limit": 0}, {"limit": 501}, {"cursor": "dlg_x"}, {"cursor": "1"}, {"since": "x"}])
async def test_what_it_does_not_know_it_refuses(http: httpx2.AsyncClient, asked: dict[str, Any]) -> None:
    answer = await http.get("/v1/audit", params=asked)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, f"/query/{next(iter(asked))}")
