"""The way to the model's endpoint: one client a loop, shared by every run, with the SDK's credentials and headers.

The SDK says who we are (credentials, headers, TLS and proxy conventions); the body is ours, so nothing is copied,
validated or encoded twice. httpcore's pool looks at every connection at each request's start and end, which is
dear with many streams at once: so each connection is a lane of its own, and taking or giving one back is O(1).
"""

from __future__ import annotations

import asyncio
import socket
import time
import urllib.request
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from ssl import SSLContext
from typing import cast
from weakref import WeakKeyDictionary

import anthropic
import httpx2
from pydantic import SecretStr

from worker.models.retry import Patience

MAX_IDLE = 4096
"""Idle connections kept, more than runs can be in one process for long."""
MAX_IDLE_SECONDS = 30.0
"""How long an idle connection is kept: longer than most tools take between two turns."""
MIN_SECRET = 6
"""Shorter values are no secrets, and masking them would only garble."""
KEEPALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]


@dataclass(frozen=True, slots=True)
class Access:
    """Where the endpoint is and who we are there. Fields left None are for the SDK to find (profiles, identity)."""

    api_key: SecretStr | None = None
    auth_token: SecretStr | None = None
    base_url: SecretStr | None = None
    headers: SecretStr | None = None
    """More headers, ``Name: value`` a line."""
    patience: Patience = field(default=Patience())

    @classmethod
    def of(cls, variables: Mapping[str, SecretStr], patience: Patience) -> Access:
        return cls(
            api_key=variables.get("ANTHROPIC_API_KEY"),
            auth_token=variables.get("ANTHROPIC_AUTH_TOKEN") if "ANTHROPIC_API_KEY" not in variables else None,
            base_url=variables.get("ANTHROPIC_BASE_URL"),
            headers=variables.get("ANTHROPIC_CUSTOM_HEADERS"),
            patience=patience,
        )

    def masked(self, text: str) -> str:
        """The text without any secret of ours; endpoints like to quote what they refuse."""
        headers = _header_lines(_plain(self.headers) or "").values()
        for secret in (_plain(self.api_key), _plain(self.auth_token), *headers):
            if secret and len(secret) >= MIN_SECRET:
                text = text.replace(secret, "***")
        return text


class Endpoint:
    """The client of one endpoint on one loop."""

    def __init__(self, access: Access) -> None:
        self._http = _http_client()
        client = anthropic.AsyncAnthropic(
            api_key=_plain(access.api_key),
            auth_token=_plain(access.auth_token),
            base_url=_plain(access.base_url),
            default_headers=_header_lines(_plain(access.headers) or ""),
            http_client=self._http,
            max_retries=0,
        )
        self._auth = client.custom_auth
        self._headers = httpx2.Headers({k: v for k, v in client.default_headers.items() if isinstance(v, str)})
        # Compressed events would have to wait for each other; SSE is small.
        self._headers["accept-encoding"] = "identity"
        self._url = client.base_url.join("v1/messages")
        self._timeout = httpx2.Timeout(access.patience.read_timeout, connect=access.patience.connect_timeout)
        self.url = str(self._url.copy_with(userinfo=b""))
        self.has_credentials = bool(
            self._auth or self._headers.get("authorization") or self._headers.get("x-api-key") or access.base_url
        )

    async def send(self, body: bytes) -> httpx2.Response:
        """The answer's head; its body is still to be read, and must be closed."""
        request = self._http.build_request(
            "POST", self._url, content=body, headers=self._headers, timeout=self._timeout
        )
        if self._auth:
            return await self._http.send(request, stream=True, auth=self._auth)
        return await self._http.send(request, stream=True)

    async def aclose(self) -> None:
        await self._http.aclose()


_endpoints: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Access, Endpoint]] = WeakKeyDictionary()


def endpoint(access: Access) -> Endpoint:
    """The running loop's client of this endpoint. Connections belong to a loop, so clients do too."""
    of_loop = _endpoints.setdefault(asyncio.get_running_loop(), {})
    if access not in of_loop:
        of_loop[access] = Endpoint(access)
    return of_loop[access]


async def close_endpoints() -> None:
    """Closes the running loop's connections."""
    for client in _endpoints.pop(asyncio.get_running_loop(), {}).values():
        await client.aclose()


class _Lanes(httpx2.AsyncBaseTransport):
    """Connections, each in a pool of its own; the one used last is used next, so the others can time out."""

    def __init__(self) -> None:
        self._idle: deque[tuple[float, httpx2.AsyncHTTPTransport]] = deque()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        lane = self._idle.pop()[1] if self._idle else _lane()
        response = await lane.handle_async_request(request)
        response.stream = _LaneStream(cast(httpx2.AsyncByteStream, response.stream), lane, self)
        return response

    async def give_back(self, lane: httpx2.AsyncHTTPTransport) -> None:
        now = time.monotonic()
        self._idle.append((now, lane))
        while self._idle and (now - self._idle[0][0] > MAX_IDLE_SECONDS or len(self._idle) > MAX_IDLE):
            await self._idle.popleft()[1].aclose()

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.pop()[1].aclose()


class _LaneStream(httpx2.AsyncByteStream):
    """A response's bytes; closing it gives the lane back."""

    def __init__(self, stream: httpx2.AsyncByteStream, lane: httpx2.AsyncHTTPTransport, lanes: _Lanes) -> None:
        self._stream = stream
        self._lane: httpx2.AsyncHTTPTransport | None = lane
        self._lanes = lanes

    def __aiter__(self) -> AsyncIterator[bytes]:
        return cast(AsyncIterable[bytes], self._stream).__aiter__()

    async def aclose(self) -> None:
        lane, self._lane = self._lane, None
        if lane is None:
            return
        # A lane whose closing was itself interrupted is not used again: its state is not known.
        await self._stream.aclose()
        await self._lanes.give_back(lane)


def _lane() -> httpx2.AsyncHTTPTransport:
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=MAX_IDLE_SECONDS)
    return httpx2.AsyncHTTPTransport(verify=trust_store(), limits=limits, socket_options=KEEPALIVE)


@lru_cache(maxsize=1)
def trust_store() -> SSLContext:
    """Made once: reading the certificate authorities takes 40 ms."""
    return httpx2.create_ssl_context()


def _http_client() -> httpx2.AsyncClient:
    if urllib.request.getproxies():  # a proxy is httpx2's business; there its own pool has to do
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE)
        return anthropic.DefaultAsyncHttpxClient(limits=limits)
    return anthropic.DefaultAsyncHttpxClient(transport=_Lanes())


def _plain(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None


def _header_lines(lines: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}
