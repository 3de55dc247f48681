"""httpcore's pool as an httpx2 transport: the one way to say how its connections are made."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager
from ssl import SSLContext
from typing import cast

import httpcore2
import httpx2

from worker.trust import trust_store

IDLE_SECONDS = 30.0
_KEEPALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]


class Pooled(httpx2.AsyncBaseTransport):
    """A transport without a proxy. ``network`` makes the connections; ``tls`` says whom to trust, if not the machine's
    certificate authorities.
    """

    def __init__(self, network: httpcore2.AsyncNetworkBackend, tls: SSLContext | None = None) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls or trust_store(),
            max_connections=None,
            keepalive_expiry=IDLE_SECONDS,
            socket_options=_KEEPALIVE,
            network_backend=network,
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        asked = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=cast(httpx2.AsyncByteStream, request.stream),
            extensions=request.extensions,
        )
        with _in_httpx2s_words():
            answer = await self._pool.handle_async_request(asked)
        return httpx2.Response(
            answer.status, headers=answer.headers, stream=_Stream(answer), extensions=answer.extensions
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Stream(httpx2.AsyncByteStream):
    """A response's bytes; closing it gives the connection back."""

    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        # Closed from the outside in: an iterator left to the garbage collector would become a task of its own.
        stream = cast(httpx2.AsyncByteStream, self._answer.stream)
        async with aclosing(cast(AsyncGenerator[bytes, None], stream.__aiter__())) as chunks:
            with _in_httpx2s_words():
                async for chunk in chunks:
                    yield chunk

    async def aclose(self) -> None:
        await self._answer.aclose()


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
