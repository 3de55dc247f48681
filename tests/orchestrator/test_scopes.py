"""Which token may do what: none of the scopes includes another one, and no route is without one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deputize.orchestrator.app import create_app
from deputize.orchestrator.mcp.tools import TOOLS
from deputize.orchestrator.operations import OPERATIONS, ROUTES
from deputize.orchestrator.scopes import MCP_PATH, Scope
from deputize.shared.request import DelegationRequest
from tests.orchestrator.access_tokens import MAIN, OPEN_PATHS, bearer, entry, one_for_each_scope, serving, write
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import opening, settings

GUARDED = [(method, path, scopes) for (method, path), scopes in ROUTES.items() if path != MCP_PATH]

SCOPES_OF_TOOLS = {
    **dict.fromkeys(("delegate", "delegate_start", "delegate_many", "cancel"), "read+submit"),
    **dict.fromkeys(("send_message", "wrap_up"), "submit"),
    **dict.fromkeys(("delegate_result", "delegations", "pending_permissions"), "read"),
    "answer_permission": "approve",
}


def operations(routes: Iterable[Any]) -> set[tuple[str, str]]:
    """Every method and path of the routes."""
    return {(method, route.path) for route in routes for method in route.methods - {"HEAD"}}


def test_every_route_of_the_application_has_a_scope_or_is_open() -> None:
    found = operations(create_app(opening(FakeService()), settings()).routes)
    assert len(found) > 20
    assert {each for each in found if each[1] not in OPEN_PATHS} == set(ROUTES)
    assert {path for _, path in found} >= OPEN_PATHS


def test_every_route_has_exactly_one_scope_and_every_tool_some() -> None:
    assert [path for _, path, scopes in GUARDED if len(scopes) != 1] == []
    assert {name: "+".join(sorted(spec.scopes)) for name, spec in TOOLS.items()} == SCOPES_OF_TOOLS
    known = {each.name for each in OPERATIONS}
    assert [name for name, spec in TOOLS.items() if not {*spec.calls} <= known] == []


def test_what_removes_or_watches_is_for_admin_and_what_changes_is_for_submit() -> None:
    by_scope = {scope: {(method, path) for method, path, needed in GUARDED if scope in needed} for scope in Scope}
    assert by_scope[Scope.ADMIN] == {
        ("POST", "/v1/delegations:prune"),
        ("POST", "/v1/workers/{name}/drain"),
        ("GET", "/v1/audit"),
    }
    assert by_scope[Scope.METRICS] == {("GET", "/metrics")}
    assert by_scope[Scope.APPROVE] == {("POST", "/v1/permissions/{permissionId}")}
    assert {method for method, _ in by_scope[Scope.READ]} == {"GET"}
    assert {method for method, _ in by_scope[Scope.SUBMIT]} == {"POST", "PUT"}


def called(path: str) -> str:
    return path.replace("{id}", "dlg_x").replace("{path:file}", "a/b").replace("{name}", "n")


@pytest.mark.parametrize("scope", Scope)
async def test_a_token_opens_the_routes_of_its_scope_and_no_others(tmp_path: Path, scope: Scope) -> None:
    async with serving(FakeService(), one_for_each_scope(tmp_path)) as http:
        for method, path, needed in GUARDED:
            if scope in needed and path == "/v1/events":  # it has no end
                continue
            answer = await http.request(method, called(path), headers=bearer(scope))
            assert (answer.status_code in (401, 403)) is (scope not in needed), (method, path)
            if scope not in needed:
                (name,) = needed
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.json()["type"] == "urn:deputize:scope-missing"
                assert f"lacks the scope {name}," in answer.json()["detail"]
                assert f'error="insufficient_scope", scope="{name}"' in answer.headers["www-authenticate"]


async def test_the_token_of_the_variable_has_all_scopes(tmp_path: Path) -> None:
    async with serving(FakeService(), one_for_each_scope(tmp_path)) as http:
        for method, path, _ in GUARDED:
            if path != "/v1/events":
                answer = await http.request(method, called(path), headers={"Authorization": f"Bearer {MAIN}"})
                assert answer.status_code not in (401, 403), (method, path)


async def test_the_scopes_of_a_token_add_up(tmp_path: Path) -> None:
    path = write(tmp_path / "tokens.toml", entry("both", "read", "submit"))
    async with serving(FakeService(), path) as http:
        assert (await http.get("/v1/tools", headers=bearer("both"))).status_code == 200
        assert (await http.post("/v1/delegations", json={"task": "x"}, headers=bearer("both"))).status_code == 202
        refused, unknown = [await http.get("/v1/audit", headers=bearer(name)) for name in ("both", "other")]
        assert (refused.status_code, refused.headers["x-token-scopes"]) == (403, "read submit")
        assert (unknown.status_code, unknown.headers.get("x-token-scopes")) == (401, None)


async def test_who_may_only_submit_learns_nothing_of_what_others_submitted(tmp_path: Path) -> None:
    service = FakeService()
    of_token = service.of("submit")
    id = (await of_token.create(DelegationRequest(task="SECRET", idempotency_key="k"))).delegation.id
    service.finish(id, summary="SECRET")
    async with serving(service, one_for_each_scope(tmp_path)) as http:
        answers: list[httpx2.Response] = []
        for end, body in (("cancel", None), ("retry", {}), ("continue", {"text": "more"})):
            answers.append(await http.post(f"/v1/delegations/{id}/{end}", headers=bearer("submit"), json=body))
        again = {"task": "SECRET", "idempotencyKey": "k"}
        answers.append(await http.post("/v1/delegations", headers=bearer("submit"), json=again))
        answers.append(await http.post("/v1/delegations:batch", headers=bearer("submit"), json={"requests": [again]}))
    assert [answer.status_code for answer in answers] == [202, 202, 202, 200, 202]
    assert [answer.text for answer in answers if "SECRET" in answer.text] == []
    assert answers[0].json()["status"] == "succeeded"


async def test_who_may_not_read_starts_nothing_that_reads_the_results_of_others(tmp_path: Path) -> None:
    service = FakeService()
    id = (await service.create(DelegationRequest(task="SECRET"))).delegation.id
    asked = {"task": "x", "after": [{"id": id}]}
    async with serving(service, one_for_each_scope(tmp_path)) as http:
        one = await http.post("/v1/delegations", headers=bearer("submit"), json=asked)
        many = await http.post(
            "/v1/delegations:batch", headers=bearer("submit"), json={"requests": [{"task": "y"}, asked]}
        )
    for answer in (one, many):
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:deputize:scope-missing")
        assert "lacks the scope read," in answer.json()["detail"]
    assert len(service.runs) == 1
    both = write(tmp_path / "both.toml", entry("both", "read", "submit"))
    async with serving(service, both) as http:
        assert (await http.post("/v1/delegations", json=asked, headers=bearer("both"))).status_code == 202
