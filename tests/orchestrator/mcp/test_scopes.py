"""Scopes and the audit log for calls of tools over `/mcp`."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.orchestrator.scopes import MCP_TOOLS, Scope
from deputize.shared.ids import new_id
from tests.orchestrator.fake_permissions import asked
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.mcp.clients import connected, content, texts
from tests.orchestrator.tokens import entry, secret_of, serving, write

TASK = {"task": "x"}
ARGUMENTS = dict.fromkeys(("delegate", "delegate_start"), TASK) | {
    "delegate_many": {"requests": [TASK]},
    "delegate_result": {},
    "delegations": {},
    "cancel": {},
    "pending_permissions": {},
    "answer_permission": {"outcome": "y"},
}


@pytest.mark.parametrize("way", ["http", "http of 2025"])
async def test_the_tools_of_mcp_need_the_same_scopes(service: FakeService, tmp_path: Path, way: str) -> None:
    path = write(tmp_path / "tokens.toml", entry("both", "read", "submit"), *(entry(each, each) for each in Scope))
    async with serving(service, path) as http:
        url = str(http.base_url).rstrip("/")
        async with connected(way, url, token=secret_of("both")) as client:
            id = content(await client.call_tool("delegate_start", {"task": "x"}))["id"]
        service.finish(id)
        request = asked(id)
        service.requests[request.permission_id] = request
        needed_for = {name: {"id": id} for name in ("cancel", "delegate_result")}
        needed_for["answer_permission"] = {"permissionId": request.permission_id}
        for scope in Scope:
            async with connected(way, url, token=secret_of(scope)) as client:
                for name, needed in MCP_TOOLS.items():
                    answer = await client.call_tool(name, ARGUMENTS[name] | needed_for.get(name, {}))
                    assert answer.is_error is not (needed == {scope}), (scope, name)
                    if answer.is_error:
                        missing = " and ".join(sorted(needed - {scope}))
                        assert f"lacks the scope {missing}," in texts(answer)[0]
                if scope is not Scope.READ:
                    for ask in (client.list_resources(), client.read_resource(f"deputize://delegations/{id}")):
                        with pytest.raises(Exception, match="lacks the scope read"):
                            await ask
    assert list(service.runs) == [id]
    refused = [each for each in service.log if each.status == 403]
    assert {(each.token, each.tool) for each in refused} >= {("read", "delegate"), ("submit", "delegate_result")}


@pytest.mark.parametrize("way", ["http", "http of 2025"])
async def test_a_call_of_mcp_that_changes_something_has_one_as_soon_as_it_does(
    service: FakeService, tmp_path: Path, way: str
) -> None:
    path = write(tmp_path / "tokens.toml", entry("ci", "submit", "read"))
    async with serving(service, path) as http:
        url = str(http.base_url).rstrip("/")
        async with connected(way, url, token=secret_of("ci")) as client:
            id = content(await client.call_tool("delegate_start", {"task": "x"}))["id"]
            await client.call_tool("delegations", {})
            await client.call_tool("delegate_result", {"id": id})
            await client.call_tool("cancel", {"id": id})
            await client.call_tool("cancel", {"id": new_id()})
    found = [(each.tool, each.token, each.method, each.route, each.status, each.delegation_ids) for each in service.log]
    assert found == [
        ("delegate_start", "ci", "POST", "/mcp", 200, [id]),
        ("cancel", "ci", "POST", "/mcp", 200, [id]),
        ("cancel", "ci", "POST", "/mcp", 404, []),
    ]
