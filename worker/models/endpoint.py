"""The way to the model's endpoint: one client a loop, shared by every run, with the SDK's credentials and headers.

The SDK says who we are (credentials, headers, TLS and redirects); the body is ours, so nothing is copied, validated
or encoded twice.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import cast
from weakref import WeakKeyDictionary

import aiohttp
import anthropic
import httpx2
from pydantic import SecretStr

from shared.masking import SecretMask
from shared.settings import header_pairs, header_values
from worker.models.retry import RetryPolicy
from worker.web.tls import trust_store

DRAIN_SECONDS = 1.0
"""How long the end of the HTTP body is waited for after the message's end, so that the connection can be kept."""
MAX_CONNECTIONS = 100_000
"""The number of runs is bounded elsewhere."""
IDLE_SECONDS = 30.0
"""How long an idle connection is kept: longer than most tools take between two turns."""
UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where the endpoint is and who we are there. Fields left None are for the SDK to find (profiles, identity)."""

    api_key: SecretStr | None = None
    auth_token: SecretStr | None = None
    base_url: SecretStr | None = None
    headers: SecretStr | None = None
    """More headers, ``Name: value`` a line."""
    retry_policy: RetryPolicy = field(default=RetryPolicy())

    @classmethod
    def of(cls, variables: Mapping[str, SecretStr], retry_policy: RetryPolicy) -> Credentials:
        return cls(
            api_key=variables.get("ANTHROPIC_API_KEY"),
            auth_token=variables.get("ANTHROPIC_AUTH_TOKEN") if "ANTHROPIC_API_KEY" not in variables else None,
            base_url=variables.get("ANTHROPIC_BASE_URL"),
            headers=variables.get("ANTHROPIC_CUSTOM_HEADERS"),
            retry_policy=retry_policy,
        )

    def masked(self, text: str) -> str:
        """The text without any secret of ours; endpoints like to quote what they refuse."""
        keys = (_plain(self.api_key), _plain(self.auth_token), *header_values(_plain(self.headers) or ""))
        return SecretMask(filter(None, keys)).text(text)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one request: the head, and the body's chunks as the connection gives them."""

    response: httpx2.Response
    chunks: AsyncGenerator[bytes, None]

    async def drain(self) -> None:
        """Reads to the end of the body, unless the server keeps it open: then the connection is given up."""
        with suppress(TimeoutError, httpx2.HTTPError):
            async with asyncio.timeout(DRAIN_SECONDS):
                async for _ in self.chunks:
                    pass


class Endpoint:
    """The client of one endpoint on one loop."""

    def __init__(self, access: Credentials) -> None:
        self._http = _http_client()
        client = anthropic.AsyncAnthropic(
            api_key=_plain(access.api_key),
            auth_token=_plain(access.auth_token),
            base_url=_plain(access.base_url),
            default_headers=dict(header_pairs(_plain(access.headers) or "")),
            http_client=self._http,
            max_retries=0,
        )
        if client.custom_auth:
            self._http.auth = client.custom_auth
        self._headers = httpx2.Headers({k: v for k, v in client.default_headers.items() if isinstance(v, str)})
        if any(UNSENDABLE.search(value) for value in self._headers.values()):
            raise ValueError(
                "a header cannot be sent: look for line ends or control characters in ANTHROPIC_API_KEY, "
                "ANTHROPIC_AUTH_TOKEN and ANTHROPIC_CUSTOM_HEADERS."
            )
        # Compressed events would have to wait for each other, and are small anyway.
        self._headers["accept-encoding"] = "identity"
        self._url = client.base_url.join("v1/messages")
        if self._url.scheme not in ("http", "https") or not self._url.host:
            shown = client.base_url.copy_with(userinfo=b"")
            raise ValueError(f"ANTHROPIC_BASE_URL is {str(shown)!r}, and an address begins with http:// or https://.")
        timeout = httpx2.Timeout(access.retry_policy.read_timeout, connect=access.retry_policy.connect_timeout)
        self._timeouts = {"timeout": timeout.as_dict()}
        self.url = str(self._url.copy_with(userinfo=b""))
        self.has_credentials = bool(
            client.custom_auth
            or self._headers.get("authorization")
            or self._headers.get("x-api-key")
            or access.base_url
        )

    @asynccontextmanager
    async def ask(self, body: bytes) -> AsyncGenerator[Answer]:
        """Sends one request; its answer is closed at the end, whatever was read of it. Raises httpx2.HTTPError."""
        request = httpx2.Request("POST", self._url, headers=self._headers, content=body, extensions=self._timeouts)
        try:
            response = await self._http.send(request, stream=True)
            chunks = _chunks(response)
            try:
                yield Answer(response, chunks)
            finally:
                await chunks.aclose()
                await response.aclose()
        except aiohttp.ClientError as error:  # those that the SDK's transport does not translate
            raise httpx2.RemoteProtocolError(str(error)) from error

    async def aclose(self) -> None:
        await self._http.aclose()


_endpoints: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Credentials, Endpoint]] = WeakKeyDictionary()


def endpoint(access: Credentials) -> Endpoint:
    """The running loop's client of this endpoint. Connections belong to a loop, so clients do too."""
    of_loop = _endpoints.setdefault(asyncio.get_running_loop(), {})
    if access not in of_loop:
        of_loop[access] = Endpoint(access)
    return of_loop[access]


async def close_endpoints() -> None:
    """Closes the running loop's connections."""
    for client in _endpoints.pop(asyncio.get_running_loop(), {}).values():
        await client.aclose()


def _chunks(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    if "content-encoding" in response.headers:
        return response.aiter_bytes()
    # As they come from the connection: httpx2's own iterators decode, re-chunk and count.
    return cast(AsyncGenerator[bytes, None], cast(httpx2.AsyncByteStream, response.stream).__aiter__())


def _http_client() -> httpx2.AsyncClient:
    """The SDK's client over aiohttp: it parses in C, so a turn costs half of what httpcore takes for it."""
    limits = httpx2.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=IDLE_SECONDS)
    return anthropic.DefaultAioHttpClient(limits=limits, verify=trust_store())


def _plain(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None
