"""`/mcp` as an HTTP route: who may use it, how much it takes, connections that break, and a service that stops."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from deputize.orchestrator.app import create_app
from deputize.shared.events import RunStarted
from tests.network.plain_http import PLAIN_HTTP
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.mcp.clients import connected, content, delegate, hello, message
from tests.orchestrator.serving import opening, served, settings
from tests.waiting import until

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
TOKEN = "t" * 32
MODERN = "2026-07-28"


async def session(http: httpx2.AsyncClient) -> dict[str, str]:
    """The headers of a new session of the revision that has them."""
    opened = await http.post("/mcp", content=hello(), headers=HEADERS)
    headers = HEADERS | {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    await http.post("/mcp", content=message("notifications/initialized", None), headers=headers)
    return headers


async def test_it_wants_the_token(service: FakeService) -> None:
    async with served(service, settings(no_token=False, token=SecretStr(TOKEN))) as url:
        async with httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=url) as http:
            for headers in (HEADERS, HEADERS | {"Authorization": "Bearer wrong"}):
                refused = await http.post("/mcp", content=hello(), headers=headers)
                assert refused.status_code == 401
                assert refused.json()["type"] == "urn:deputize:unauthorized"
        async with connected("http", url, token=TOKEN) as client:
            started = content(await client.call_tool("delegate_start", {"task": "x"}))
            assert started["id"] in service.runs


async def test_a_call_does_not_pay_for_the_schemas_of_all_tools(url: str) -> None:
    """The SDK asks for the called one with each call: made anew, they would hold the event loop up for 0.1 s a time."""
    async with connected("http", url) as client:
        await client.call_tool("delegations", {"limit": 1})
        begun = time.process_time()
        for _ in range(20):
            await client.call_tool("delegations", {"limit": 1})
        assert time.process_time() - begun < 1


async def test_it_answers_no_page_of_another_origin(http: httpx2.AsyncClient) -> None:
    refused = await http.post("/mcp", content=hello(), headers=HEADERS | {"Origin": "https://evil.example"})
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:deputize:forbidden")
    rebound = await http.post("/mcp", content=hello(), headers=HEADERS | {"Host": "evil.example"})
    assert rebound.status_code == 401


async def test_its_bodies_and_methods_are_limited(http: httpx2.AsyncClient) -> None:
    assert (await http.post("/mcp", content=b" " * (4 * 1024 * 1024 + 1), headers=HEADERS)).status_code == 413
    assert (await http.post("/mcp", content=f"[{'1,' * 30_000}1]", headers=HEADERS)).status_code == 413
    assert (await http.head("/mcp", headers=await session(http))).status_code == 405
    assert (await http.put("/mcp")).status_code == 405


async def test_a_message_that_cannot_be_read_is_mended_or_refused(
    http: httpx2.AsyncClient, service: FakeService
) -> None:
    headers = await session(http)
    halved = message("tools/call", 8, name="delegate_start", arguments={"task": "a\ud83d b"})
    assert '"isError":true' not in (await http.post("/mcp", content=halved, headers=headers)).text
    latin = message("tools/call", 9, name="delegate_start", arguments={"task": "X"}).encode().replace(b"X", b"\xff")
    assert '"isError":true' not in (await http.post("/mcp", content=latin, headers=headers)).text
    assert [run.request.task for run in service.runs.values()] == ["a\ufffd b", "\ufffd"]
    deep = '{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":' + "[" * 100_000
    for body in (deep, '{"jsonrpc":"2.0","id":7}', '{"jsonrpc":"2.0","id":7,"method":[]}'):
        refused = await http.post("/mcp", content=body, headers=headers)
        assert (refused.status_code, "error" in refused.json()) == (400, True)


async def test_a_connection_that_breaks_cancels_what_it_waited_for(url: str, service: FakeService) -> None:
    async with httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=url, timeout=30) as http:
        headers = await session(http)
        async with http.stream("POST", "/mcp", content=delegate("x"), headers=headers):
            (id,) = await until(lambda: [*service.runs])
            await until(lambda: service.following == 1)
        await until(lambda: service.runs[id].status == "cancelled")
        assert service.following == 0


@pytest.mark.parametrize("way", ["http", "http of 2025"])
async def test_a_service_that_stops_cancels_nothing(service: FakeService, way: str) -> None:
    async def call(url: str) -> None:
        async with connected(way, url) as client:
            await client.call_tool("delegate", {"task": "x"}, progress_callback=heard)

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        reported.set()

    reported = asyncio.Event()
    async with served(service) as url:
        calling = asyncio.create_task(call(url))
        await until(lambda: service.following == 1)
        (id,) = service.runs
        service.happen(id, RunStarted(worker="w", model="m", tools=[], limits=service.runs[id].effective_limits))
        await reported.wait()
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    assert (service.following, service.runs[id].status) == (0, "running")


async def test_calls_that_wait_take_the_places_of_other_streams(service: FakeService) -> None:
    async with served(service, settings(max_streams=1)) as url, connected("http", url) as client:
        calling = asyncio.create_task(client.call_tool("delegate", {"task": "x"}))
        await until(lambda: service.following == 1)
        refused = await client.call_tool("delegate", {"task": "y"})
        assert refused.is_error
        assert len(service.runs) == 1, "what could not be waited for must not have begun"
        (id,) = service.runs
        service.finish(id)
        assert not (await calling).is_error


def test_neither_the_application_nor_the_help_loads_the_sdk() -> None:
    for code in ("import deputize.orchestrator.app", "from deputize.orchestrator.cli import cli; cli(['--help'])"):
        check = "import atexit, sys; atexit.register(lambda: print('mcp' in sys.modules, file=sys.stderr)); "
        done = subprocess.run([sys.executable, "-c", check + code], capture_output=True, text=True, check=True)
        assert done.stderr.split() == ["False"]


async def test_a_request_that_the_server_ends_cancels_nothing(service: FakeService) -> None:
    """As the server does with what is under way when its time to stop is over."""
    app = create_app(opening(service), settings())
    meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
    body = message("tools/call", name="delegate", arguments={"task": "x"}, _meta=meta).encode()
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "delegate", "Host": "localhost"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in (HEADERS | headers).items()],
        "app": app,
    }
    arriving = asyncio.Queue[dict[str, Any]]()
    arriving.put_nowait({"type": "http.request", "body": body})

    async def send(_: Any) -> None:
        pass

    async with app.router.lifespan_context(app):
        serving = asyncio.create_task(app(scope, arriving.get, send))
        await until(lambda: service.following == 1 or serving.done())
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await until(lambda: service.following == 0)
    assert [run.status for run in service.runs.values()] == ["queued"]
