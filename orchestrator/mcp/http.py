"""`/mcp`: the server over Streamable HTTP, with the token, the origin check and the limits of every other route."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from deputize.orchestrator.auth import check_token
from deputize.orchestrator.caller import note_of
from deputize.orchestrator.delegations import Delegations
from deputize.orchestrator.dependencies import check_shape, read_body
from deputize.orchestrator.scopes import Scope as TokenScope
from deputize.orchestrator.sse import StreamSlots
from deputize.shared.errors import Forbidden
from deputize.shared.request import DelegationRequest

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from deputize.orchestrator.mcp.elicitation import Asked, Context

GONE = "deputize.gone"
"""Key in the ASGI scope of the event that is set when the client disconnects."""
SESSION = "mcp-session-id"
METHODS = ("GET", "POST", "DELETE")
MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_VALUES = 20_000


class ServiceHere:
    """The operations of this process."""

    folder = None
    stays = True

    def __init__(self, service: Delegations, slots: StreamSlots) -> None:
        self._service = service
        self._slots = slots

    async def for_work(self, requests: Sequence[DelegationRequest]) -> Delegations:
        return self._service

    async def for_reading(self) -> Delegations:
        return self._service

    async def if_open(self) -> Delegations:
        return self._service

    def waiting(self) -> AbstractContextManager[None]:
        return self._slots.acquire()


class Askers:
    """The questions under way, by session. Their answers are recorded with the token that is asked, so only that one
    may answer: a session belongs to no token.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, list[str | None]] = {}

    @contextmanager
    def asked(self, session: str | None, token: str | None) -> Generator[None]:
        tokens = self._tokens.setdefault(session or "", [])
        tokens.append(token)
        try:
            yield
        finally:
            tokens.remove(token)
            if not tokens:
                self._tokens.pop(session or "", None)

    def check(self, request: Request, body: bytes) -> None:
        """Raises Forbidden where another token answers."""
        tokens = self._tokens.get(request.headers.get(SESSION, ""), ())
        if not tokens or note_of(request.scope).token in tokens:
            return
        if not _is_request(body):
            raise Forbidden("the user of another token was asked, so only that token may send the answer")


def _is_request(body: bytes) -> bool:
    try:
        return "method" in json.loads(body)
    except (ValueError, TypeError):  # no message at all, which the SDK refuses
        return True


class McpEndpoint:
    """The ASGI application. It loads the MCP SDK with its first request: most services never get one."""

    def __init__(self) -> None:
        self._loading = asyncio.Lock()
        self._closed = asyncio.Event()
        self._manager: StreamableHTTPSessionManager | None = None
        self._serving: asyncio.Task[None] | None = None
        self._askers = Askers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await check_token(request)
        if scope.get("head"):
            raise HTTPException(405)
        body = b""
        if request.method == "POST":
            body = await read_body(request, MAX_BODY_BYTES)
            await check_shape(body, MAX_VALUES)
            self._askers.check(request, body)
        manager = await self._started(request)
        gone = asyncio.Event()
        await manager.handle_request({**scope, GONE: gone}, _replayed(body, receive, gone), send)

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._closed.set()
            if self._serving is not None:
                await self._serving

    async def _started(self, request: Request) -> StreamableHTTPSessionManager:
        async with self._loading:
            if self._manager is None:
                await asyncio.to_thread(_load)
                ready = asyncio.Event()
                self._serving = asyncio.create_task(self._serve(request, ready))
                await ready.wait()
            assert self._manager is not None
            return self._manager

    async def _serve(self, request: Request, ready: asyncio.Event) -> None:
        """Runs the sessions until the end of the application. A task, because their task group needs one."""
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from deputize.orchestrator.mcp.server import McpServer

        state = request.app.state
        server = McpServer(ServiceHere(state.service, state.slots), self)
        manager = StreamableHTTPSessionManager(
            server.server, max_sessions=state.settings.max_streams, max_request_body_size=MAX_BODY_BYTES
        )
        async with manager.run():
            self._manager = manager
            ready.set()
            await self._closed.wait()
            await server.close()

    def gone(self, context: Context) -> asyncio.Event:
        return self._scope(context)[GONE]

    def check(self, context: Context, scopes: frozenset[TokenScope]) -> None:
        caller = note_of(self._scope(context)).caller
        assert caller is not None
        caller.check(scopes)

    def token(self, context: Context) -> str | None:
        return note_of(self._scope(context)).token

    def asked(self, context: Context) -> Asked | None:
        note = note_of(self._scope(context))
        assert note.caller is not None
        if TokenScope.APPROVE not in note.caller.scopes:
            return None
        assert context.request is not None
        return partial(self._askers.asked, context.request.headers.get(SESSION), note.token)

    async def record(self, context: Context, tool: str, ids: Sequence[str], status: int) -> None:
        scope = self._scope(context)
        await scope["app"].state.audit.call(scope, tool, ids, status)

    def _scope(self, context: Context) -> Scope:
        assert context.request is not None
        return context.request.scope

    def left(self, context: Context) -> bool:
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        if self.gone(context).is_set():
            return True
        # A modern client cancels by disconnecting alone; else the server ends the request because it stops.
        return not (self._closed.is_set() or context.protocol_version in MODERN_PROTOCOL_VERSIONS)


def _load() -> None:
    """Imports the SDK and the server; called in a thread, because it takes long enough to delay other requests."""
    for module in ("mcp.server.streamable_http_manager", "deputize.orchestrator.mcp.server"):
        importlib.import_module(module)


def _replayed(body: bytes, receive: Receive, gone: asyncio.Event) -> Receive:
    """Returns a ``receive`` that returns the body that was read, and then notes the client's disconnect."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        message = await receive()
        if message["type"] == "http.disconnect":
            gone.set()
        return message

    return replay
