"""Connections that cost the same however many there are: each is a lane of its own.

httpcore's pool looks at all its connections at the start and the end of every request, which is dear with many
streams at once. A pool of one has nothing to look at; here idle ones lie on a stack, and taking one is O(1).
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager
from functools import lru_cache
from ssl import SSLContext
from typing import cast

import httpcore2
import httpx2

MAX_IDLE = 4096
"""Idle connections kept: more than one process's runs need for long."""
MAX_IDLE_SECONDS = 30.0
"""How long an idle connection is kept: longer than most tools take between two turns."""
_KEEPALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]


class Lanes(httpx2.AsyncBaseTransport):
    """A transport without a proxy. The lane used last is used next, so that the others can time out.

    ``network`` makes the connections, and ``tls`` says whom to trust, where it is not the machine's own way.
    """

    def __init__(self, network: httpcore2.AsyncNetworkBackend | None = None, tls: SSLContext | None = None) -> None:
        self._network = network
        self._tls = tls
        self._idle: deque[tuple[float, httpcore2.AsyncConnectionPool]] = deque()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        lane = self._idle.pop()[1] if self._idle else self._lane()
        url = request.url
        asked = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=cast(httpx2.AsyncByteStream, request.stream),
            extensions=request.extensions,
        )
        with _in_httpx2s_words():
            answer = await lane.handle_async_request(asked)
        stream = _LaneStream(answer, lane, self)
        return httpx2.Response(answer.status, headers=answer.headers, stream=stream, extensions=answer.extensions)

    async def give_back(self, lane: httpcore2.AsyncConnectionPool) -> None:
        now = time.monotonic()
        self._idle.append((now, lane))
        while self._idle and (now - self._idle[0][0] > MAX_IDLE_SECONDS or len(self._idle) > MAX_IDLE):
            await self._idle.popleft()[1].aclose()

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.pop()[1].aclose()

    def _lane(self) -> httpcore2.AsyncConnectionPool:
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._tls or trust_store(),
            max_connections=1,
            max_keepalive_connections=1,
            keepalive_expiry=MAX_IDLE_SECONDS,
            socket_options=_KEEPALIVE,
            network_backend=self._network,
        )


class _LaneStream(httpx2.AsyncByteStream):
    """A response's bytes; closing it gives the lane back."""

    def __init__(self, answer: httpcore2.Response, lane: httpcore2.AsyncConnectionPool, lanes: Lanes) -> None:
        self._answer = answer
        self._lane: httpcore2.AsyncConnectionPool | None = lane
        self._lanes = lanes

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        # Closed from the outside in: an iterator left to the garbage collector would become a task of its own.
        stream = cast(httpx2.AsyncByteStream, self._answer.stream)
        async with aclosing(cast(AsyncGenerator[bytes, None], stream.__aiter__())) as chunks:
            with _in_httpx2s_words():
                async for chunk in chunks:
                    yield chunk

    async def aclose(self) -> None:
        lane, self._lane = self._lane, None
        if lane is None:
            return
        # A lane whose closing was itself interrupted is not used again: its state is not known.
        await self._answer.aclose()
        await self._lanes.give_back(lane)


@contextmanager
def _in_httpx2s_words() -> Generator[None]:
    """httpcore's errors as httpx2's of the same names."""
    try:
        yield
    except (
        httpcore2.TimeoutException,
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        httpcore2.ProxyError,
        httpcore2.UnsupportedProtocol,
    ) as error:
        raise getattr(httpx2, type(error).__name__, httpx2.TransportError)(str(error)) from error


@lru_cache(maxsize=1)
def trust_store() -> SSLContext:
    """Made once a process: reading the certificate authorities takes 40 ms."""
    return httpx2.create_ssl_context()
