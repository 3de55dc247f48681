"""The server over stdio: one client, whose end of input is its end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, cast

from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

from ...shared.text import valid_json_unicode
from .call import Source
from .server import McpServer

if TYPE_CHECKING:
    import anyio
    from mcp.shared._stream_protocols import ReadStream

CHUNK = 64 * 1024
_ID = re.compile(
    r'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15}|"[^"\\]{1,100}")'
    r'|"id"\s*:\s*(\d{1,15}|"[^"\\]{1,100}")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$'
)
PENDING = 16
"""Maximum lines that are read before the server takes them."""


async def serve(source: Source) -> None:
    """Answers until the end of standard input, or until it is cancelled; then cancels what the client waits for."""
    server = McpServer(source)
    lines = cast("anyio.AsyncFile[str]", _lines())
    try:
        async with stdio_server(stdin=lines) as (reading, writing):
            requests = cast("ReadStream[SessionMessage | Exception]", _Requests(reading, writing))
            await server.server.run(requests, writing, server.server.create_initialization_options())
    finally:
        await server.settle()


class _Requests:
    """The client's messages. One that cannot be read is answered with the reason: its sender would wait for ever.

    Where it has no id that can be read, the answer's is null, unless it has the form of a notification.
    """

    def __init__(self, reading: Any, writing: Any) -> None:
        self._reading = reading
        self._writing = writing

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._reading.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while isinstance(item := await anext(self._reading), ValidationError):
            errors = item.errors(include_url=False)
            first, given = errors[0], errors[0]["input"]
            found = _ID.search(f"{given[:1000]}{given[-1000:]}") if isinstance(given, str) else None
            # Some of the errors of a message of a wrong form are about the whole of it.
            wholes = [each["input"] for each in errors if isinstance(each["input"], dict)]
            ids = [each["id"] for each in wholes if "id" in each]
            id = json.loads(found[1] or found[2]) if found else next(iter(ids), None)
            notifies = not ids and any("method" in each for each in wholes)
            if not notifies:
                detail = ErrorData(code=PARSE_ERROR, message=f"the message cannot be read: {first['msg']}")
                known = id if isinstance(id, int | str) else None
                await self._writing.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=known, error=detail)))
        return cast("SessionMessage | Exception", item)


def _messages_in(line: bytes) -> Sequence[str]:
    """Returns the messages of a line, without a byte order mark: one, or those of a batch of an older client."""
    text = valid_json_unicode(line).decode().strip(" \t\r\n\ufeff")
    if text.startswith("["):
        with suppress(ValueError, RecursionError):
            return [json.dumps(each) for each in json.loads(text)] or [text]
    return [text] if text else []


async def _lines() -> AsyncIterator[str]:
    """Yields the lines of standard input, read by a daemon thread: a read cannot be interrupted, and must not delay us.

    The SDK's own reader would hold up a signal until the client writes again.
    """
    lines: asyncio.Queue[str | None] = asyncio.Queue(PENDING)
    loop = asyncio.get_running_loop()

    def put(line: str | None) -> None:
        asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()

    def read() -> None:
        rest = b""
        with suppress(OSError):
            while chunk := os.read(0, CHUNK):
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    for message in _messages_in(line):
                        put(message)
        put(None)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line
