"""`/mcp`: the server over Streamable HTTP, with the token, the origin check and the limits of every other route."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ...shared.text import valid_json_unicode
from ..auth import check_token
from ..dependencies import check_shape, read_body

if TYPE_CHECKING:
    from .sessions import Sessions

METHODS = ("GET", "POST", "DELETE")
MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_VALUES = 20_000


class McpEndpoint:
    """The ASGI application. It loads the MCP SDK with its first request: most services never get one."""

    def __init__(self) -> None:
        self._loading = asyncio.Lock()
        self._closed = asyncio.Event()
        self._sessions: Sessions | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await check_token(request)
        if scope.get("head"):
            raise HTTPException(405)
        body = b""
        if request.method == "POST":
            body = valid_json_unicode(await read_body(request, MAX_BODY_BYTES))
            await check_shape(body, MAX_VALUES)
        await (await self._started(request)).handle(body, scope, receive, send)

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._closed.set()
            if self._serving is not None:
                await self._serving

    async def _started(self, request: Request) -> Sessions:
        async with self._loading:
            if self._sessions is None:
                # In a thread, because it takes long enough to delay other requests.
                await asyncio.to_thread(importlib.import_module, "deputize.orchestrator.mcp.sessions")
                ready = asyncio.Event()
                self._serving = asyncio.create_task(self._serve(request, ready))
                await ready.wait()
            assert self._sessions is not None
            return self._sessions

    async def _serve(self, request: Request, ready: asyncio.Event) -> None:
        """Runs the sessions until the end of the application. A task, because their task group needs one."""
        from .sessions import running

        async with running(request.app.state, self._closed) as self._sessions:
            ready.set()
            await self._closed.wait()
