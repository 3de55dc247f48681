"""A server over HTTP that sends what no SDK lets a server send: as JSON, as events, or over the older SSE transport."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

ANY: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": True}
TOOLS = [{"name": "say", "inputSchema": ANY}, {"name": "no schema"}, "no tool at all"]


class BluntServer:
    def __init__(self, way: str) -> None:
        self._way = way
        self._events: asyncio.StreamWriter | None = None

    def answer(self, message: dict[str, Any]) -> bytes:
        id, params = message["id"], message.get("params", {})
        if message["method"] == "tools/call":
            before, repeated, times, after = params["arguments"]["parts"]
            return (before + repeated * times + after).replace("$ID", json.dumps(id)).encode("latin-1")
        about = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "b", "version": "1"},
        }
        known = {"initialize": about, "tools/list": {"tools": TOOLS}}
        if message["method"] not in known:
            return json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}).encode()
        return json.dumps({"jsonrpc": "2.0", "id": id, "result": known[message["method"]]}).encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = next((int(line[15:]) for line in head.splitlines() if line.startswith("content-length:")), 0)
                body = await reader.readexactly(length)
                await self._respond(head.split()[0], body, writer)
        writer.close()

    async def _respond(self, method: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if method == "get" and self._way == "sse":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: endpoint\ndata: /post\n\n")
            self._events = writer
            return
        message = json.loads(body) if body else {}
        if method != "post" or "id" not in message:
            status = b"405 No" if method != "post" else b"202 Accepted"
            writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
            return
        answer = self.answer(message)
        if self._way == "sse":
            assert self._events is not None
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
            self._events.write(event(answer))
            return
        kind, content = ("text/event-stream", event(answer)) if self._way == "events" else ("application/json", answer)
        start = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
        writer.write(start.encode() + content)
        with suppress(ConnectionError):
            await writer.drain()


def event(answer: bytes) -> bytes:
    return b"".join(b"event: message\ndata: " + line + b"\n\n" for line in answer.split(b"\n"))


@asynccontextmanager
async def blunt_server(way: str) -> AsyncIterator[dict[str, Any]]:
    """Yields the entry for mcp.json of a server that answers in this ``way``: json, events or sse."""
    tasks: set[asyncio.Task[None]] = set()
    served = BluntServer(way)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await served.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield {"url": f"http://127.0.0.1:{port}/mcp", "type": "sse" if way == "sse" else "http"}
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
