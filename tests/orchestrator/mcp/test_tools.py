"""Each tool, over each way, by the SDK's own client, which checks every result against the tool's output schema."""

from __future__ import annotations

import asyncio

import pytest

from deputize.shared.delegation import Usage
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.mcp.clients import WAYS, connected, content, texts
from tests.waiting import until

pytestmark = pytest.mark.parametrize("way", WAYS)


async def test_delegate_returns_the_result(way: str, url: str, service: FakeService) -> None:
    async with connected(way, url) as client:
        calling = asyncio.create_task(client.call_tool("delegate", {"task": "count", "limits": {"maxTurns": 7}}))
        await until(lambda: service.following)
        (id,) = service.runs
        assert service.runs[id].request.limits.max_turns == 7
        changed = {"files_modified": ["a.py"], "turn_count": 3, "tool_call_count": 2, "execution_time_ms": 1234}
        service.finish(id, summary="Three.", usage=Usage(input_tokens=5, cost_usd=0.25), **changed)
        result = await calling
    said = content(result)
    assert not result.is_error
    assert texts(result)[0] == (
        f"✓ {id} succeeded (completed): 3 turns, 2 tool calls, 1.2 s, $0.2500; "
        f"1 file changed in its own copy, see deputize://delegations/{id}/patch"
    )
    assert (said["id"], said["status"], said["success"], said["summary"]) == (id, "succeeded", True, "Three.")
    assert (said["filesModified"], said["usage"]["costUsd"]) == (["a.py"], 0.25)


async def test_a_client_that_cancels_a_call_cancels_what_it_waits_for(way: str, url: str, service: FakeService) -> None:
    async with connected(way, url) as client:
        started = content(await client.call_tool("delegate_start", {"task": "stays"}))["id"]
        calling = asyncio.create_task(client.call_tool("delegate", {"task": "waited for"}))
        await until(lambda: service.following == 1)
        asking = asyncio.create_task(client.call_tool("delegate_result", {"id": started, "waitSeconds": 600}))
        await until(lambda: service.following == 2)
        calling.cancel()
        asking.cancel()
        await asyncio.gather(calling, asking, return_exceptions=True)
        await until(lambda: service.following == 0)
        waited = next(id for id in service.runs if id != started)
        assert await until(lambda: service.runs[waited].status.finished)
        assert content(await client.call_tool("delegate_result", {"id": waited}))["status"] == "cancelled"
        assert content(await client.call_tool("delegate_result", {"id": started}))["status"] == "queued"


async def test_a_client_that_goes_away_cancels_what_it_waits_for(way: str, url: str, service: FakeService) -> None:
    async with connected(way, url) as client:
        started = content(await client.call_tool("delegate_start", {"task": "stays"}))["id"]
        calling = asyncio.create_task(client.call_tool("delegate", {"task": "waited for"}))
        await until(lambda: service.following == 1)
    await asyncio.gather(calling, return_exceptions=True)
    await until(lambda: service.following == 0)
    waited = next(id for id in service.runs if id != started)
    assert await until(lambda: service.runs[waited].status == "cancelled")
    assert service.runs[started].status == "queued"
