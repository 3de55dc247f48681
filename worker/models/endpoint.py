"""HTTP client of the model's endpoint: one per event loop, shared by all runs.

It stands on aiohttp, whose parser is in C. The provider's SDK is imported only where a platform signs each request
(``platforms.py``), and where no key and no token is configured, for its other credentials (profiles, identity tokens):
importing it costs each worker process a second and 30 MB.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies
from weakref import WeakKeyDictionary

import aiohttp
import httpx2
import yarl

from ...shared.fleet import own_version
from ...shared.settings import header_pairs
from ..web.dial import trust_store
from .credentials import HEADERS, URL, Credentials
from .retry import Failure, RetryPolicy

if TYPE_CHECKING:
    from .platforms import Signer

DRAIN_SECONDS = 1.0
"""How long to read for the end of the HTTP body after the last event, so that the connection can be reused."""
CHUNK_BYTES = 16 * 1024
IDLE_SECONDS = 30.0
"""How long an idle connection is kept open: longer than most tools run between two turns."""
ANTHROPIC_HOST = "api.anthropic.com"
API_VERSION = "2026-10-21"
MAX_PORT = 65_535
MESSAGES = "v1/messages"
"""The path below the base URL."""
PROXY_REFUSALS = {401, 403, 407}
PROXY_ADVICE = "Set HTTPS_PROXY, HTTP_PROXY or ALL_PROXY to an HTTP proxy, or add the endpoint's host to NO_PROXY."
INVALID_HEADER_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


class Endpoint:
    """The client of one endpoint on one event loop. Raises ValueError where it is misconfigured."""

    def __init__(self, credentials: Credentials, retry_policy: RetryPolicy) -> None:
        self._names = credentials.names
        self._signer: Signer | None = None
        if credentials.platform == "anthropic":
            base = self._set_headers(credentials)
        else:
            from .platforms import Signer

            self._signer = Signer(credentials)
            base, self._auth, self._headers, self.has_credentials = self._signer.base, None, {}, True
        public = base.copy_with(userinfo=b"")
        if base.scheme not in ("http", "https") or not base.host:
            raise ValueError(f"{self._names.url} is {str(public)!r}, but must begin with http:// or https://.")
        self._base = httpx2.URL(f"{str(public).removesuffix('/')}/")
        self.url = str(self._base.join(MESSAGES))
        self._proxy = _proxy(base)
        self.route = f"{self.url} through the proxy {self._proxy.copy_with(userinfo=b'')}" if self._proxy else self.url
        """The address and how it is reached, for errors of the connection."""
        self.is_anthropic = base.host == ANTHROPIC_HOST
        self._retry_policy = retry_policy
        # The number of runs bounds the connections.
        connector = aiohttp.TCPConnector(ssl=trust_store(), limit=0, keepalive_timeout=IDLE_SECONDS)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=retry_policy.connect_timeout, sock_read=retry_policy.read_timeout
        )
        self._http = aiohttp.ClientSession(connector=connector, timeout=timeout)

    def _set_headers(self, credentials: Credentials) -> httpx2.URL:
        """Sets the headers that all requests have, and whether there are credentials; returns the base URL."""
        given = credentials.get(URL)
        self._auth, address, headers = _of_sdk(given) if credentials.uses_sdk else (None, given, {})
        base = httpx2.URL(address or f"https://{ANTHROPIC_HOST}")
        if not credentials.uses_sdk:
            headers = {**_OWN_HEADERS, "user-agent": f"deputize/{own_version()}"}
            headers |= {"authorization": f"Bearer {credentials.token}"} if credentials.token else {}
        headers.update(header_pairs(credentials.get(HEADERS) or ""))
        self._headers = {name.lower(): value for name, value in headers.items()}
        if any(INVALID_HEADER_CHARACTERS.search(value) for value in self._headers.values()):
            raise ValueError(
                "a header cannot be sent: look for line ends, control characters and bytes that are not UTF-8 in "
                + self._names.key
                + (f" and {HEADERS}." if credentials.finds_others else ".")
            )
        if base.userinfo and not self._auth:
            login = b64encode(f"{base.username}:{base.password}".encode()).decode()
            self._headers["authorization"] = f"Basic {login}"
        # Compression delays small events until a block is full.
        self._headers["accept-encoding"] = "identity"
        signed = self._headers.get("authorization") or self._headers.get("x-api-key")
        self.has_credentials = bool(self._auth or signed or given)
        return base

    def post(self, body: bytes, path: str = MESSAGES) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Sends one request; the response is closed on exit, even if it was not read.

        Raises Failure where the connection fails, also while the response is read, and where it cannot be signed.
        """
        return self._send("POST", path, body)

    def get(self, path: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Does the same with a request without a body, which only an endpoint without a signer has."""
        return self._send("GET", path, b"")

    @asynccontextmanager
    async def _send(self, method: str, path: str, body: bytes) -> AsyncGenerator[aiohttp.ClientResponse]:
        url, headers = self.url if path == MESSAGES else str(self._base.join(path)), self._headers
        if self._signer:
            signed, headers = await self._signer.signed(path, body)
            url = yarl.URL(signed, encoded=True)  # the signature is for these very bytes
        elif self._auth:
            headers = await _signed(self._auth, url, headers)
        proxy = str(self._proxy) if self._proxy else None
        follows = self._signer is None  # a signature is for one address
        try:
            options: Any = {"headers": headers, "proxy": proxy, "allow_redirects": follows}
            request = self._http.request(method, url, data=body or None, **options)
            async with request as response:
                yield response
        except aiohttp.ClientError as error:
            raise _classified(error, self.route, self._retry_policy, self._names.url) from None

    async def aclose(self) -> None:
        if self._signer:
            await self._signer.aclose()
        await self._http.close()


class Body:
    """The body of a response, in chunks. ``end_seconds``: how long its end may take once what it holds is complete."""

    def __init__(self, response: aiohttp.ClientResponse, end_seconds: float) -> None:
        self._content = response.content
        self._end_seconds = end_seconds
        self._deadline: float | None = None

    async def read(self, *, is_complete: bool) -> bytes:
        """Returns the next chunk; b"" at the end, and where nothing is to be waited for any more."""
        if not is_complete:
            return await self._content.read(CHUNK_BYTES)
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._end_seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._content.read(CHUNK_BYTES)
        except TimeoutError as error:
            if isinstance(error, aiohttp.ClientError):  # one of the socket's, which is the endpoint's failure
                raise
            return b""


async def drain(response: aiohttp.ClientResponse) -> None:
    """Reads to the end of the body; after DRAIN_SECONDS the connection is closed instead of reused."""
    if response.content.at_eof():
        return
    with suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while await response.content.readany():
                pass


_OWN_HEADERS = {
    "anthropic-version": API_VERSION,
    "accept": "application/json",
    "content-type": "application/json",
}


def _of_sdk(base: str | None) -> tuple[httpx2.Auth | None, str, dict[str, str]]:
    """Returns what the SDK finds: a profile, or an identity token of the environment. Raises ValueError."""
    from anthropic import AnthropicError, AsyncAnthropic

    try:
        # Its connections are not used, so that no proxy is asked for: the first one that it cannot use ends it.
        client = AsyncAnthropic(base_url=base, http_client=httpx2.AsyncClient(trust_env=False, verify=trust_store()))
    except AnthropicError as error:
        raise ValueError(str(error)) from None
    headers = {name: value for name, value in client.default_headers.items() if isinstance(value, str)}
    return client.custom_auth, str(client.base_url), headers


async def _signed(auth: httpx2.Auth, url: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers with the SDK's token. Raises Failure."""
    from anthropic import AnthropicError

    try:
        request = httpx2.Request("POST", url, headers=dict(headers))
        async with aclosing(auth.async_auth_flow(request)) as requests:
            signed = (await anext(requests)).headers
        return {name: value for name, value in signed.items() if name not in ("host", "content-length")}
    except AnthropicError as error:
        raise Failure(f"no credentials for {url}: {error}", retryable=False) from None
    except ImportError as error:  # of the proxy that the token's address is reached through
        raise Failure(f"no credentials for {url}: {error} {PROXY_ADVICE}", retryable=False) from None
    except httpx2.HTTPError as error:
        raise Failure(f"no credentials for {url}: {str(error) or type(error).__name__}", retryable=True) from None


_endpoints: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, RetryPolicy], Endpoint]] = WeakKeyDictionary()


def endpoint_of(credentials: Credentials, retry_policy: RetryPolicy) -> Endpoint:
    """Returns the running event loop's client of this endpoint, because connections belong to an event loop."""
    of_loop, key = _endpoints.setdefault(asyncio.get_running_loop(), {}), (credentials.id, retry_policy)
    if key not in of_loop:
        of_loop[key] = Endpoint(credentials, retry_policy)
    return of_loop[key]


async def close_endpoints() -> None:
    """Closes the connections of the running event loop."""
    for client in _endpoints.pop(asyncio.get_running_loop(), {}).values():
        await client.aclose()


def _proxy(url: httpx2.URL) -> httpx2.URL | None:
    """Returns the proxy of the environment for an address, or None where it is reached directly.

    Raises ``ValueError`` for one that cannot be used: only HTTP is spoken to proxies.
    """
    proxies = getproxies()
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address or any(_excepts(entry.strip().lower(), url) for entry in proxies.get("no", "").split(",")):
        return None
    proxy = httpx2.URL(address if "://" in address else f"http://{address}")
    public = proxy.copy_with(userinfo=b"")
    if proxy.scheme not in ("http", "https"):
        raise ValueError(f"{public} is not an HTTP proxy, so it is not supported. {PROXY_ADVICE}")
    if not proxy.host or (proxy.port or 0) > MAX_PORT:
        raise ValueError(f"{str(public)!r} is not the address of a proxy. {PROXY_ADVICE}")
    return proxy


def _excepts(entry: str, url: httpx2.URL) -> bool:
    """Returns whether an entry of NO_PROXY covers an address.

    Entries are ``*``, a host with its subdomains, ``.domain``, ``*.domain``, or a network; all but the last may have a
    port, and a scheme.
    """
    scheme, _, name = entry.rpartition("://")
    if scheme not in ("", "all", url.scheme):
        return False
    with suppress(ValueError):
        return ip_address(url.host) in ip_network(name, strict=False)
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    host_name = name.removeprefix("*").replace("[", "").replace("]", "")
    return name == "*" or any(
        host == host_name or (host_name != "" and host.endswith(f".{host_name.removeprefix('.')}"))
        for host in (url.host, f"{url.host}:{port}")
    )


def _classified(error: aiohttp.ClientError, url: str, retry_policy: RetryPolicy, setting: str) -> Failure:
    """Returns the failure for a connection error. All are temporary but those that the configuration causes."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Failure(
            f"the certificate of {url} is not trusted: {error}. Check {setting}, or name the certificate "
            "authority in SSL_CERT_FILE.",
            retryable=False,
        )
    reason = str(error) or type(error).__name__
    match error:
        case aiohttp.SocketTimeoutError():
            reason = f"the stream stalled: no byte for {retry_policy.read_timeout:g} s"
        case aiohttp.ConnectionTimeoutError():
            reason = f"no connection to {url} within {retry_policy.connect_timeout:g} s"
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            refused = isinstance(error, aiohttp.ClientHttpProxyError) and error.status in PROXY_REFUSALS
            advice = " Check the user and password in HTTPS_PROXY, and the rules of the proxy." if refused else ""
            return Failure(f"no connection to {url}: it answered {reason}.{advice}", retryable=not refused)
        case aiohttp.InvalidURL() | aiohttp.TooManyRedirects():
            return Failure(f"{reason} Check {setting} ({url}).", retryable=False)
        case aiohttp.ClientConnectionError():
            reason = f"no connection to {url}: {reason}"
        case _:
            reason = f"the connection to {url} broke: {reason}"
    return Failure(reason, retryable=True)
