"""Clients of the official SDK, over each way to the MCP server."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
import mcp_types as types
from mcp import Client
from mcp.client._transport import TransportStreams
from mcp.client.session import ElicitationFnT
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from tests.network.plain_http import PLAIN_HTTP
from tests.orchestrator.command_line import PROGRAM, environment
from tests.processes.preloaded import Forked

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
        async with Client(over_stdio(variables, cwd), mode=mode, elicitation_callback=ask) as client:
            yield client
        return
    headers = {"Authorization": f"Bearer {token}"} if token else None
    async with (
        httpx2.AsyncClient(verify=PLAIN_HTTP, headers=headers, timeout=30) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode, elicitation_callback=ask) as client,
    ):
        yield client


@asynccontextmanager
async def over_stdio(variables: Mapping[str, str], cwd: Path | None) -> AsyncIterator[TransportStreams]:
    """The transport of the SDK to a `deputize mcp` that starts by fork, which takes a tenth of the CPU time."""
    (given, to_server), (from_server, out) = os.pipe(), os.pipe()
    process = Forked(PROGRAM, ["mcp"], variables, stdin=given, stdout=out, stderr=2, cwd=cwd)
    os.close(given)
    os.close(out)
    to_client, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_client = anyio.create_memory_object_stream[SessionMessage](0)
    lines = asyncio.StreamReader(limit=1 << 26)
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(from_server, "rb", 0)
    )

    async def read() -> None:
        with to_client:
            while line := await lines.readline():
                await to_client.send(SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False)))

    async def write() -> None:
        with os.fdopen(to_server, "wb", 0) as pipe, from_client:
            async for each in from_client:
                pipe.write(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    reading, writing = asyncio.create_task(read()), asyncio.create_task(write())
    with closing(pipe), incoming, outgoing:
        try:
            yield incoming, outgoing
        finally:
            outgoing.close()
            incoming.close()
            await asyncio.gather(writing, return_exceptions=True)
            async with asyncio.timeout(20):
                await process.ended()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


class Heard(list[str | None]):
    """The messages of a call's progress."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.append(message)


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
