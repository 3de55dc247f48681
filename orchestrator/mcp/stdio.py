"""The server over stdio: one client, whose end of input is its end."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, cast

from mcp.server.stdio import stdio_server

from deputize.orchestrator.mcp.elicitation import Context
from deputize.orchestrator.mcp.server import McpServer
from deputize.orchestrator.mcp.source import Source
from deputize.orchestrator.scopes import Scope

if TYPE_CHECKING:
    import anyio

CHUNK = 64 * 1024
PENDING = 16
"""Maximum lines that are read before the server takes them."""


class StdinTransport:
    """Everything that ends a call here is its client's doing: a message, the end of input, or a signal."""

    def gone(self, context: Context) -> None:
        return None

    def left(self, context: Context) -> bool:
        return True

    def check(self, context: Context, scopes: frozenset[Scope]) -> None:
        """The service checks the token with which this server sends its own requests, and records them."""

    def token(self, context: Context) -> None:
        return None

    def may_answer(self, context: Context) -> bool:
        return True

    def waiting(self, context: Context) -> AbstractContextManager[None]:
        return nullcontext()

    async def record(self, context: Context, tool: str, ids: Sequence[str], status: int) -> None:
        pass


async def serve(source: Source) -> None:
    """Answers until the end of standard input, or until it is cancelled; then cancels what the client waits for."""
    server = McpServer(source, StdinTransport())
    lines = cast("anyio.AsyncFile[str]", _Lines())
    try:
        async with stdio_server(stdin=lines) as (reading, writing):
            await server.server.run(reading, writing, server.server.create_initialization_options())
    finally:
        await server.settle()


class _Lines:
    """The lines of standard input, read by a daemon thread: a read cannot be interrupted, and must not delay the end.

    The SDK's own reader would hold up a signal until the client writes again.
    """

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue(PENDING)
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[str]:
        while (line := await self._lines.get()) is not None:
            yield line

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                chunk = os.read(0, CHUNK)
            except OSError:
                chunk = b""
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    self._put(line.decode("utf-8", "replace"))
            if not chunk:
                self._put(None)
                return

    def _put(self, line: str | None) -> None:
        asyncio.run_coroutine_threadsafe(self._lines.put(line), self._loop).result()
