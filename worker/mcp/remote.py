"""Servers over HTTP: streamable HTTP, and SSE for older ones. Connections are guarded like those for web pages.

Only the configured host and port may be a private address. A failed request fails alone: the SDK would close the
whole connection.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import INVALID_REQUEST

from ..web.dial import GuardedTransport, Network
from ..web.targets import target
from .answers import MAX_MESSAGE, EventLines, readable
from .entry import Server
from .pipes import Pace

NOT_SENT, BROKEN = -32010, -32011
"""Our own JSON-RPC error codes: the server cannot have received the request, or it may have."""
_CONNECT_SECONDS = 15.0
_LONGEST_SSE = 1024 * 1024 - 1024
"""Bytes of one message over SSE: the SDK ends the connection at an event of 1 MiB."""
_LOOPBACK = re.compile(r"(.+\.)?localhost", re.IGNORECASE)
_QUIET_SECONDS = 24 * 3600.0
"""An SSE connection is idle between two calls; a call has its own time limit."""


@asynccontextmanager
async def reached(server: Server, on_error: Callable[[bytes], None], broken: Callable[[], None]) -> AsyncGenerator[Any]:
    """Yields the SDK's streams. ``on_error`` is called with HTTP errors, ``broken`` when the connection is unusable."""
    steady = _Steady(server, on_error, broken if server.type == "sse" else lambda: None)
    headers = {**server.headers, "Accept-Encoding": "identity"}
    timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_QUIET_SECONDS)

    def client(*_: Any, **__: Any) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=steady, headers=headers, timeout=timeout, trust_env=False)

    if server.type == "sse":
        async with sse_client(server.url, httpx_client_factory=client) as streams:
            yield streams
    else:
        async with (
            client() as http,
            streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_MESSAGE) as streams,
        ):
            yield streams


def guarded(url: str, network: Network | None = None) -> GuardedTransport:
    """Returns a transport to the URL's host; private addresses are allowed on its port, loopback only if named.

    Otherwise the owner of the DNS name could reach services that listen on this machine's loopback only.
    """
    where = target(url)
    named = where.address.is_loopback if where.address else _LOOPBACK.fullmatch(where.host) is not None
    return GuardedTransport([where.host_port], loopback=named, network=network)


class _Steady(httpx2.AsyncBaseTransport):
    """Turns a failed HTTP request into a JSON-RPC error response for that request alone."""

    def __init__(self, server: Server, on_error: Callable[[bytes], None], broken: Callable[[], None]) -> None:
        self._guarded = guarded(server.url)
        self._pace = Pace()
        self._on_error = on_error
        self._broken = broken
        self._longest = _LONGEST_SSE if server.type == "sse" else MAX_MESSAGE

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            answer = await self._guarded.handle_async_request(request)
        except httpx2.TransportError as error:
            why = f"{type(error).__name__}: {error}"
            self._on_error(why.encode() + b"\n")
            if request.method != "POST":
                raise
            self._broken()
            unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            return _refusal(503, NOT_SENT if unsent else BROKEN, why)
        kind = answer.headers.get("content-type", "").lower()
        if answer.headers.get("content-encoding", "identity") != "identity":
            await answer.aclose()
            return _refusal(502, BROKEN, "its response is compressed, which was not requested")
        if answer.status_code >= 400:
            status = f"HTTP {answer.status_code} {answer.reason_phrase}".strip()
            self._on_error(status.encode() + b"\n")
            if answer.status_code != 404 and not kind.startswith("application/json"):
                await answer.aclose()
                return _refusal(answer.status_code, BROKEN if answer.is_server_error else INVALID_REQUEST, status)
        streams = kind.startswith("text/event-stream")
        body = cast(httpx2.AsyncByteStream, answer.stream)
        answer.stream = _Paced(body, self._pace, self._longest) if streams else _Bounded(body)
        return answer

    async def aclose(self) -> None:
        await self._guarded.aclose()


class _Paced(httpx2.AsyncByteStream):
    """An event stream with a rate limit, whose messages can be read."""

    def __init__(self, body: httpx2.AsyncByteStream, pace: Pace, longest: int) -> None:
        self._body = body
        self._pace = pace
        self._lines = EventLines(longest)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._body:
            yield self._lines.feed(part)
            if pause := self._pace.pause(len(part), part.count(b"\n")):
                await asyncio.sleep(pause)
            if self._pace.exhausted:
                raise httpx2.ReadError("it sends messages faster than they can be read")

    async def aclose(self) -> None:
        await self._body.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """A body of bounded size that can be read, whose failures are exceptions that the SDK handles."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        whole = bytearray()
        try:
            async for part in self._body:
                whole += part
                if len(whole) > MAX_MESSAGE:
                    raise httpx2.StreamError(f"the response is longer than {MAX_MESSAGE} bytes")
        except httpx2.TransportError as error:
            raise httpx2.StreamError(f"the answer broke off: {error}") from None
        yield readable(bytes(whole)) or b""

    async def aclose(self) -> None:
        await self._body.aclose()


def _refusal(status: int, code: int, message: str) -> httpx2.Response:
    error = {"code": code, "message": message[:500]}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error})
