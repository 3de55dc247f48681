"""The sessions and calls of `/mcp`. Each belongs to its caller. Loads the MCP SDK, which takes long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, cast

from mcp.server.auth.middleware.bearer_auth import (
    AuthenticatedUser,
    AuthorizationContext,
    authorization_context,
)
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.datastructures import State
from starlette.types import Message, Receive, Scope, Send

from ...shared.errors import Unavailable
from ...shared.request import DelegationRequest
from ...shared.settings import Settings
from ..access_tokens import Caller, name_of_caller, note_of
from ..delegations import Delegations
from ..operations import Service
from ..sse import StreamSlots
from .elicitation import Context
from .server import McpServer

GONE = "deputize.gone"
"""Key in the ASGI scope of the event that is set when the client disconnects."""
_SESSION = MCP_SESSION_ID_HEADER.encode()
Headers = Iterable[tuple[bytes, bytes]]


class Sessions(StreamableHTTPSessionManager):
    """Sessions that do not exist for others than the caller that opened them, and end when they are not used."""

    def __init__(self, server: Server[Any], settings: Settings) -> None:
        super().__init__(
            server,
            max_sessions=settings.max_streams,
            session_idle_timeout=settings.mcp_session_seconds,
        )
        self._per_caller = settings.max_streams_per_caller

    async def handle(self, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request whose body was read."""
        gone = asyncio.Event()
        user = AuthenticatedUser(AccessToken(token="", client_id=name_of_caller(scope), scopes=[]))
        headers = scope["headers"]
        if not self._has(user, headers) and _opens(body):
            # A client that starts again may still send the id of a session that has ended.
            headers = [pair for pair in headers if pair[0] != _SESSION]
        scope = {**scope, "headers": headers, "user": user, GONE: gone}
        await self.handle_request(scope, _replayed(body, receive, gone), send)

    def _has(self, user: AuthenticatedUser, headers: Headers) -> bool:
        ids = {value.decode("latin-1") for name, value in headers if name == _SESSION}
        return any(self._session_owners.get(id) == authorization_context(user) for id in ids)

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        """Raises Unavailable where the caller has as many as it may have; returns None where all together have."""
        if sum(owner == requestor for owner in self._session_owners.values()) >= self._per_caller:
            raise Unavailable(
                f"this caller has {self._per_caller} MCP sessions already; end some of them (DELETE /mcp), "
                "or set DEPUTIZE_MAX_STREAMS_PER_CALLER"
            )
        return super()._admit_session(requestor)


class ServiceHere:
    """The operations of this process."""

    folder = None
    stays = True

    def __init__(self, service: Service) -> None:
        self._service = service

    async def service(self, requests: Sequence[DelegationRequest] = ()) -> Service:
        return self._service

    async def if_open(self) -> Service:
        return self._service


class HttpServer(McpServer):
    """Its calls have their caller's scopes, and count for its places."""

    def __init__(self, operations: Delegations, slots: StreamSlots, closed: asyncio.Event) -> None:
        super().__init__(ServiceHere(operations))
        self._operations = operations
        self._slots = slots
        self._closed = closed

    def source(self, context: Context) -> ServiceHere:
        caller = self.caller(context)
        return ServiceHere(self._operations.of(caller.owner, is_confined=caller.is_confined))

    def gone(self, context: Context) -> asyncio.Event:
        return _scope(context)[GONE]

    def caller(self, context: Context) -> Caller:
        caller = note_of(_scope(context)).caller
        assert caller is not None
        return caller

    def waiting(self, context: Context) -> AbstractContextManager[None]:
        return self._slots.acquire(name_of_caller(_scope(context)))

    async def record(self, context: Context, tool: str, ids: Sequence[str], status: int) -> None:
        scope = _scope(context)
        await scope["app"].state.audit.call(scope, tool, ids, status)

    def left(self, context: Context) -> bool:
        if self.gone(context).is_set():
            return True
        # A modern client cancels by disconnecting alone; else the server ends the request because it stops.
        return not (self._closed.is_set() or context.protocol_version in MODERN_PROTOCOL_VERSIONS)


def _opens(body: bytes) -> bool:
    """Returns whether a message asks for a new session."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and cast("dict[str, Any]", message).get("method") == "initialize"


def _scope(context: Context) -> Scope:
    assert context.request is not None
    return context.request.scope


@asynccontextmanager
async def running(state: State, closed: asyncio.Event) -> AsyncGenerator[Sessions]:
    """Runs the sessions of an application during the block; at its end ``closed`` must be set."""
    server = HttpServer(state.service, state.slots, closed)
    sessions = Sessions(server.server, state.settings)
    async with sessions.run():
        yield sessions
        await server.close()


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
