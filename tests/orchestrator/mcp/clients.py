"""Clients of the official SDK, over each way to the MCP server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.session import ElicitationFnT
from mcp.client.streamable_http import streamable_http_client

from tests.orchestrator.command_line import PROGRAM, environment

WAYS = ["http", "http of 2025", "stdio", "stdio of 2025"]


@asynccontextmanager
async def connected(
    way: str,
    url: str,
    *,
    token: str | None = None,
    cwd: Path | None = None,
    home: Path | None = None,
    ask: ElicitationFnT | None = None,
) -> AsyncIterator[Client]:
    """A client of the service at ``url``: directly, or of a `deputize mcp` that uses this service."""
    mode: Literal["legacy", "auto"] = "legacy" if way.endswith("2025") else "auto"
    if way.startswith("stdio"):
        given = {"DEPUTIZE_URL": url, "DEPUTIZE_TOKEN": token or "", "DEPUTIZE_HOME": str(home or "")}
        variables = environment(**{name: value for name, value in given.items() if value})
        server = StdioServerParameters(command=PROGRAM, args=["mcp"], env=variables, cwd=cwd)
        async with Client(server, mode=mode, elicitation_callback=ask) as client:
            yield client
        return
    headers = {"Authorization": f"Bearer {token}"} if token else None
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode, elicitation_callback=ask) as client,
    ):
        yield client


def texts(result: types.CallToolResult) -> list[str]:
    return [content.text for content in result.content if isinstance(content, types.TextContent)]


def content(result: types.CallToolResult) -> dict[str, Any]:
    """What a client reads: the structured content, which the second text repeats."""
    assert result.structured_content is not None
    assert json.loads(texts(result)[1]) == result.structured_content
    return result.structured_content


# The same without the SDK, line by line


def message(method: str, id: int | None = 1, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id}))


def hello() -> str:
    return message(
        "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "t", "version": "1"}
    )


def delegate(task: str) -> str:
    return message("tools/call", name="delegate", arguments={"task": task}, _meta={"progressToken": 1})
