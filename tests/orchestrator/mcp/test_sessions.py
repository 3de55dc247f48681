"""Sessions of `/mcp` belong to their callers, and calls need the scopes of their tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deputize.orchestrator.mcp.tools import TOOLS
from deputize.orchestrator.scopes import Scope
from deputize.shared.ids import new_id
from tests.orchestrator.access_tokens import bearer, entry, secret_of, serving, write
from tests.orchestrator.fake_permissions import asked
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.mcp.clients import connected, content, delegate, hello, message, texts
from tests.waiting import until

EVERY = ("all", "read", "submit", "approve")
TYPES = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.fixture
async def http(service: FakeService, tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    path = write(tmp_path / "tokens.toml", *(entry(name, *EVERY) for name in ("ada", "bob")))
    async with serving(service, path, max_streams=3, max_streams_per_caller=2) as http:
        yield http


async def opened(http: httpx2.AsyncClient, name: str) -> httpx2.Response:
    return await http.post("/mcp", content=hello(), headers=TYPES | bearer(name))


def of_session(response: httpx2.Response, name: str) -> dict[str, str]:
    id = response.headers["mcp-session-id"]
    return TYPES | {"Mcp-Session-Id": id, "MCP-Protocol-Version": "2025-11-25"} | bearer(name)


async def ready(http: httpx2.AsyncClient, name: str) -> dict[str, str]:
    headers = of_session(await opened(http, name), name)
    await http.post("/mcp", content=message("notifications/initialized", None), headers=headers)
    return headers


async def test_a_session_does_not_exist_for_another_token(http: httpx2.AsyncClient, service: FakeService) -> None:
    """Each message of one that knows its id: it listens to nothing, calls, cancels, answers and ends nothing."""
    headers = await ready(http, "ada")
    async with http.stream("POST", "/mcp", content=delegate("x"), headers=headers):
        (id,) = await until(lambda: [*service.runs] if service.following == 1 else [])
        foreign = headers | bearer("bob")
        answers: list[Any] = [
            await http.get("/mcp", headers=foreign),
            await http.delete("/mcp", headers=foreign),
            *[
                await http.post("/mcp", content=content, headers=foreign)
                for content in (
                    message("notifications/cancelled", None, requestId=1),
                    message("tools/call", 2, name="delegations", arguments={}),
                    message("ping", 3),
                    '{"jsonrpc":"2.0","id":1,"result":{}}',
                )
            ],
        ]
        assert [answer.status_code for answer in answers] == [404] * 6
        assert (await http.post("/mcp", content=message("ping", 4), headers=headers)).status_code == 200
        assert (service.runs[id].status, service.following) != ("cancelled", 0)
    await until(lambda: service.following == 0)


async def test_one_token_does_not_take_the_sessions_of_others(http: httpx2.AsyncClient) -> None:
    mine = [await opened(http, "ada") for _ in range(3)]
    assert [each.status_code for each in mine] == [200, 200, 503]
    assert "DEPUTIZE_MAX_STREAMS_PER_CALLER" in mine[2].json()["detail"]
    assert (await opened(http, "bob")).status_code == 200
    assert (await opened(http, "bob")).status_code == 503, "all together have as many as there may be"
    assert (await http.delete("/mcp", headers=of_session(mine[0], "ada"))).status_code == 200
    assert (await opened(http, "ada")).status_code == 200


@pytest.mark.parametrize("way", ["http", "http of 2025"])
async def test_the_waiting_calls_of_one_token_do_not_take_the_streams_of_others(
    http: httpx2.AsyncClient, service: FakeService, way: str
) -> None:
    url = str(http.base_url).rstrip("/")
    async with connected(way, url, token=secret_of("ada")) as ada, connected(way, url, token=secret_of("bob")) as bob:
        calls = [asyncio.create_task(ada.call_tool("delegate", {"task": "x"})) for _ in range(2)]
        ids = await until(lambda: [*service.runs] if service.following == 2 else [])
        for tool, arguments in (
            ("delegate", {"task": "y"}),
            ("delegate_many", {"requests": [{"task": "y"}]}),
            ("delegate_result", {"id": ids[0], "waitSeconds": 1}),
        ):
            refused = await ada.call_tool(tool, arguments)
            assert refused.is_error, tool
            assert "DEPUTIZE_MAX_STREAMS_PER_CALLER" in texts(refused)[0]
        assert (await http.get(f"/v1/delegations/{ids[0]}?wait=1", headers=bearer("ada"))).status_code == 503
        assert (await http.get(f"/v1/delegations/{ids[0]}?wait=0.01", headers=bearer("bob"))).status_code == 200
        assert not (await bob.call_tool("delegate_result", {"id": ids[0], "waitSeconds": 0.01})).is_error
        assert [*service.runs] == ids
        for id in ids:
            service.finish(id)
        await asyncio.gather(*calls)


async def test_a_session_that_is_not_used_ends(service: FakeService, tmp_path: Path) -> None:
    path = write(tmp_path / "tokens.toml", entry("ada", *EVERY))
    async with serving(service, path, max_streams=1, mcp_session_seconds=0.01) as http:
        idle = of_session(await opened(http, "ada"), "ada")

        async def another() -> bool:
            return (await opened(http, "ada")).status_code == 200

        await until(another)
        assert (await http.post("/mcp", content=message("ping", 7), headers=idle)).status_code == 404


@pytest.mark.parametrize("stale", ["unknown", "", "\u00e4", "ended", "another caller's"])
async def test_a_client_that_starts_again_with_a_stale_session_gets_a_new_one(
    http: httpx2.AsyncClient, stale: str
) -> None:
    id = stale.encode("latin-1")
    if stale == "ended":
        first = of_session(await opened(http, "ada"), "ada")
        assert (await http.delete("/mcp", headers=first)).status_code == 200
        id = first["Mcp-Session-Id"].encode()
    elif stale == "another caller's":
        id = (await opened(http, "bob")).headers["mcp-session-id"].encode()
    headers: Any = [*(TYPES | bearer("ada")).items(), (b"Mcp-Session-Id", id)]
    again = await http.post("/mcp", content=hello(), headers=headers)
    assert (again.status_code, again.headers["mcp-session-id"].encode() == id) == (200, False)
    await http.post("/mcp", content=message("notifications/initialized", None), headers=of_session(again, "ada"))
    assert (await http.post("/mcp", content=message("ping", 4), headers=of_session(again, "ada"))).status_code == 200
    for other in (message("ping", 5), f"[{hello()}]", "no message", "[" * 10_000):
        assert (await http.post("/mcp", content=other, headers=headers)).status_code in (400, 404)


TASK = {"task": "x"}
ARGUMENTS = dict.fromkeys(("delegate", "delegate_start"), TASK) | {
    "delegate_many": {"requests": [TASK]},
    "delegate_result": {},
    "delegations": {},
    "cancel": {},
    "send_message": {"text": "x"},
    "wrap_up": {},
    "pending_permissions": {},
    "answer_permission": {"outcome": "y"},
}


@pytest.mark.parametrize("way", ["http", "http of 2025"])
async def test_the_tools_of_mcp_need_the_same_scopes(service: FakeService, tmp_path: Path, way: str) -> None:
    path = write(
        tmp_path / "tokens.toml", entry("both", "read", "submit", "all"), *(entry(each, each, "all") for each in Scope)
    )
    async with serving(service, path) as http:
        url = str(http.base_url).rstrip("/")
        async with connected(way, url, token=secret_of("both")) as client:
            id, runs = [content(await client.call_tool("delegate_start", {"task": "x"}))["id"] for _ in range(2)]
        service.finish(id)
        request = asked(id)
        service.requests[request.permission_id] = request
        needed_for = {name: {"id": id} for name in ("cancel", "delegate_result")}
        needed_for |= {name: {"id": runs} for name in ("send_message", "wrap_up")}
        needed_for["answer_permission"] = {"permissionId": request.permission_id}
        for scope in Scope:
            async with connected(way, url, token=secret_of(scope)) as client:
                for name, needed in {name: spec.scopes for name, spec in TOOLS.items()}.items():
                    answer = await client.call_tool(name, ARGUMENTS[name] | needed_for.get(name, {}))
                    assert answer.is_error is not (needed == {scope}), (scope, name)
                    if answer.is_error:
                        missing = " and ".join(sorted(needed - {scope}))
                        assert f"lacks the scope {missing}," in texts(answer)[0]
                if scope is not Scope.READ:
                    for ask in (client.list_resources(), client.read_resource(f"deputize://delegations/{id}")):
                        with pytest.raises(Exception, match="lacks the scope read"):
                            await ask
    assert list(service.runs) == [id, runs]
    refused = [each for each in service.log if each.status == 403]
    assert {(each.token, each.tool) for each in refused} >= {("read", "delegate"), ("submit", "delegate_result")}


@pytest.mark.parametrize("way", ["http", "http of 2025"])
async def test_a_call_of_mcp_that_changes_something_has_one_as_soon_as_it_does(
    service: FakeService, tmp_path: Path, way: str
) -> None:
    path = write(tmp_path / "tokens.toml", entry("ci", "submit", "read", "all"))
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
