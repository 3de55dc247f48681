"""HTTP/1.1 connections with limits: timeouts for head and body, and a maximum number of connections.

uvicorn has none of these: an incomplete request would hold its connection, and its descriptor, for ever. h11 limits
the size of a head, which the faster parser does not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from ..shared.errors import Refused
from ..shared.open_files import raise_limit

HEAD_SECONDS = 10.0
"""Seconds from the connection, or the first byte of its next request, to the end of that request's head."""
LINGER_SECONDS = 2.0
"""Seconds for which the rest of a refused request is discarded, so that its sender can read the response."""
MOST_HEADERS = 100
SPARE_DESCRIPTORS = 256
"""File descriptors reserved for Redis, logs and others."""

SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
"""Sent with every response, so that no page can execute, frame or embed it."""


def most_connections() -> int:
    """Raises this process's limit of open files. Returns the number of connections that it allows."""
    return max(64, raise_limit() - SPARE_DESCRIPTORS)


class TooManyHeaders(Refused):
    """The request has more headers than are allowed."""

    status = 431
    title = "Request header fields too large"


def check_head(headers: Sequence[object]) -> None:
    """Raises TooManyHeaders; h11 bounds their size."""
    if len(headers) > MOST_HEADERS:
        raise TooManyHeaders(f"the request has {len(headers)} headers; {MOST_HEADERS} are allowed")


class BoundedProtocol(H11Protocol):
    """One of at most ``MOST`` open connections; when they are exceeded, the longest idle one is closed."""

    MOST: int = 10_000
    HEAD_SECONDS: float = HEAD_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._since = self.loop.time()

    def connection_made(self, transport: Any) -> None:
        if len(self.connections) >= self.MOST:
            self._make_room()
        super().connection_made(transport)
        self._by(self.HEAD_SECONDS, self._head_too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            if not self._answered_early():
                self._cancel()
        elif self._deadline is None and not self.transport.is_closing():
            self._by(self.HEAD_SECONDS, self._head_too_slow)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = self.loop.time()
        if self._answered_early() and self._deadline is None:
            self._by(LINGER_SECONDS, self._abort)

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, "the request is not valid HTTP")

    @property
    def waiting(self) -> bool:
        """Whether the connection is idle."""
        return self._cycle is None or self._cycle.response_complete

    def _answered_early(self) -> bool:
        return self._cycle is not None and self.waiting and self.conn.their_state is h11.SEND_BODY

    @property
    def _cycle(self) -> RequestResponseCycle | None:
        return self.cycle  # None before the first request, contrary to uvicorn's types

    def _make_room(self) -> None:
        waiting = [other for other in self.connections if isinstance(other, BoundedProtocol) and other.waiting]
        if waiting:
            min(waiting, key=lambda other: other._since)._abort()

    def _head_too_slow(self) -> None:
        self._deadline = None
        if self.waiting and not self.transport.is_closing():
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the head of a request did not come in time")

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Writes a problem document directly: there is no request for the application to handle."""
        problem = {"type": "about:blank", "title": status.phrase, "status": status, "detail": detail, "errors": []}
        body = json.dumps(problem, separators=(",", ":")).encode()
        headers = {"Content-Type": "application/problem+json", "Content-Length": str(len(body)), "Connection": "close"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers | SAFE_HEADERS).items())
        self.transport.write(f"HTTP/1.1 {status.value} {status.phrase}\r\n{lines}\r\n".encode() + body)
        self.transport.close()

    def _abort(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()

    def _by(self, seconds: float, act: Any) -> None:
        self._cancel()
        self._deadline = self.loop.call_later(seconds, act)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
