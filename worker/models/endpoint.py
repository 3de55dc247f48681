"""HTTP client of the model's endpoint: one per event loop, shared by all runs.

The SDK provides credentials, headers, TLS and redirects; the request body is encoded here, so that nothing is copied,
validated or encoded twice.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import cast
from weakref import WeakKeyDictionary

import aiohttp
import httpx2
from anthropic import AsyncAnthropic, DefaultAioHttpClient
from pydantic import SecretStr

from ...shared.masking import SecretMask
from ...shared.settings import header_pairs, secrets_of
from ..web.dial import trust_store
from .retry import RetryPolicy

DRAIN_SECONDS = 1.0
"""How long to read for the end of the HTTP body after the last event, so that the connection can be reused."""
MAX_CONNECTIONS = 100_000
"""Not a limit: the number of runs bounds the connections."""
IDLE_SECONDS = 30.0
"""How long an idle connection is kept open: longer than most tools run between two turns."""
ANTHROPIC_HOST = "api.anthropic.com"
MAX_PORT = 65_535
PROXY_ADVICE = "Set HTTPS_PROXY, HTTP_PROXY or ALL_PROXY to an HTTP proxy, or add the endpoint's host to NO_PROXY."
INVALID_HEADER_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The endpoint's address and credentials. The SDK resolves fields that are None (profiles, identity tokens)."""

    api_key: SecretStr | None = None
    auth_token: SecretStr | None = None
    base_url: SecretStr | None = None
    headers: SecretStr | None = None
    """Further headers, one ``Name: value`` per line."""
    retry_policy: RetryPolicy = field(default=RetryPolicy())

    @classmethod
    def from_variables(cls, variables: Mapping[str, SecretStr], retry_policy: RetryPolicy) -> Credentials:
        """Reads the SDK's environment variables; an API key takes precedence over an auth token."""
        return cls(
            api_key=variables.get("ANTHROPIC_API_KEY"),
            auth_token=variables.get("ANTHROPIC_AUTH_TOKEN") if "ANTHROPIC_API_KEY" not in variables else None,
            base_url=variables.get("ANTHROPIC_BASE_URL"),
            headers=variables.get("ANTHROPIC_CUSTOM_HEADERS"),
            retry_policy=retry_policy,
        )

    def digest(self, model: str) -> str:
        """Returns a name for this address, these credentials and a model that reveals none of them."""
        parts = (model, *map(_reveal, (self.base_url, self.api_key, self.auth_token, self.headers)))
        return sha256(repr(parts).encode()).hexdigest()[:32]

    def masked(self, text: str) -> str:
        """Returns the text with the credentials masked, because endpoints may quote them in error messages."""
        fields = {
            "ANTHROPIC_API_KEY": self.api_key,
            "ANTHROPIC_AUTH_TOKEN": self.auth_token,
            "ANTHROPIC_BASE_URL": self.base_url,
            "ANTHROPIC_CUSTOM_HEADERS": self.headers,
        }
        given = {name: value.get_secret_value() for name, value in fields.items() if value}
        return SecretMask(secrets_of(given)).text(text)


@dataclass(frozen=True, slots=True)
class StreamedResponse:
    """The response to one request: status and headers, and the body in chunks as received."""

    response: httpx2.Response
    chunks: AsyncGenerator[bytes, None]

    async def drain(self) -> None:
        """Reads to the end of the body; after DRAIN_SECONDS the connection is closed instead of reused."""
        with suppress(TimeoutError, httpx2.HTTPError):
            async with asyncio.timeout(DRAIN_SECONDS):
                async for _ in self.chunks:
                    pass


class Endpoint:
    """The client of one endpoint on one event loop."""

    def __init__(self, credentials: Credentials) -> None:
        self._http = _http_client()
        client = AsyncAnthropic(
            api_key=_reveal(credentials.api_key),
            auth_token=_reveal(credentials.auth_token),
            base_url=_reveal(credentials.base_url),
            default_headers=dict(header_pairs(_reveal(credentials.headers) or "")),
            http_client=self._http,
            max_retries=0,
        )
        if client.custom_auth:
            self._http.auth = client.custom_auth
        self._headers = httpx2.Headers({k: v for k, v in client.default_headers.items() if isinstance(v, str)})
        if any(INVALID_HEADER_CHARACTERS.search(value) for value in self._headers.values()):
            raise ValueError(
                "a header cannot be sent: look for line ends or control characters in ANTHROPIC_API_KEY, "
                "ANTHROPIC_AUTH_TOKEN and ANTHROPIC_CUSTOM_HEADERS."
            )
        # Compression delays small events until a block is full.
        self._headers["accept-encoding"] = "identity"
        self._url = client.base_url.join("v1/messages")
        if self._url.scheme not in ("http", "https") or not self._url.host:
            public = client.base_url.copy_with(userinfo=b"")
            raise ValueError(f"ANTHROPIC_BASE_URL is {str(public)!r}, but must begin with http:// or https://.")
        timeout = httpx2.Timeout(
            credentials.retry_policy.read_timeout, connect=credentials.retry_policy.connect_timeout
        )
        self._timeouts = {"timeout": timeout.as_dict()}
        self.url = str(self._url.copy_with(userinfo=b""))
        proxy = _proxy(self._http, self._url)
        self.route = f"{self.url} through the proxy {proxy}" if proxy else self.url
        """The address and how it is reached, for errors of the connection."""
        self.is_anthropic = self._url.host == ANTHROPIC_HOST
        self.has_credentials = bool(
            client.custom_auth
            or self._headers.get("authorization")
            or self._headers.get("x-api-key")
            or credentials.base_url
        )

    @asynccontextmanager
    async def post(self, body: bytes) -> AsyncGenerator[StreamedResponse]:
        """Sends one request; the response is closed on exit, even if it was not read. Raises httpx2.HTTPError."""
        request = httpx2.Request("POST", self._url, headers=self._headers, content=body, extensions=self._timeouts)
        try:
            response = await self._http.send(request, stream=True)
            chunks = _chunks(response)
            try:
                yield StreamedResponse(response, chunks)
            finally:
                await chunks.aclose()
                await response.aclose()
        except aiohttp.ClientError as error:  # the SDK's transport does not translate all of them
            raise httpx2.RemoteProtocolError(str(error)) from error

    async def aclose(self) -> None:
        await self._http.aclose()


_endpoints: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Credentials, Endpoint]] = WeakKeyDictionary()


def endpoint_of(credentials: Credentials) -> Endpoint:
    """Returns the running event loop's client of this endpoint, because connections belong to an event loop."""
    of_loop = _endpoints.setdefault(asyncio.get_running_loop(), {})
    if credentials not in of_loop:
        of_loop[credentials] = Endpoint(credentials)
    return of_loop[credentials]


async def close_endpoints() -> None:
    """Closes the connections of the running event loop."""
    for client in _endpoints.pop(asyncio.get_running_loop(), {}).values():
        await client.aclose()


def _chunks(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    if "content-encoding" in response.headers:
        return response.aiter_bytes()
    # The raw stream: httpx2's own iterators decode, re-chunk and count.
    return cast(AsyncGenerator[bytes, None], cast(httpx2.AsyncByteStream, response.stream).__aiter__())


def _http_client() -> httpx2.AsyncClient:
    """Returns the SDK's aiohttp client: its parser is in C, which halves the CPU time of a turn.

    Raises ``ValueError`` for a proxy of the environment that is neither an HTTP nor a SOCKS proxy.
    """
    limits = httpx2.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=IDLE_SECONDS)
    try:
        return DefaultAioHttpClient(limits=limits, verify=trust_store())
    except ValueError as error:
        raise ValueError(f"{error}. {PROXY_ADVICE}") from None


def _proxy(http: httpx2.AsyncClient, url: httpx2.URL) -> httpx2.URL | None:
    """Returns the proxy of the environment for an address, or None where it is reached directly.

    Raises ``ValueError`` for one that cannot be used: aiohttp would speak HTTP to a SOCKS proxy, and ignore one
    without a host.
    """
    transport = http._transport_for_url(url)  # pyright: ignore[reportPrivateUsage] - there is no public way to ask
    proxy = cast(httpx2.Proxy | None, getattr(transport, "proxy", None))
    if proxy is None:
        return None
    if proxy.url.scheme not in ("http", "https"):
        raise ValueError(f"{proxy.url} is a SOCKS proxy, which is not supported. {PROXY_ADVICE}")
    if not proxy.url.host or (proxy.url.port or 0) > MAX_PORT:
        raise ValueError(f"{str(proxy.url)!r} is not the address of a proxy. {PROXY_ADVICE}")
    return proxy.url


def _reveal(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None
