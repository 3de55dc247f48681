"""HTTP client of the model's endpoint: one per event loop, shared by all runs.

It stands on aiohttp, whose parser is in C. The provider's SDK is imported only where no key and no token is configured,
for its other credentials (profiles, identity tokens): importing it costs each worker process a second and 30 MB.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from hashlib import sha256
from ipaddress import ip_address, ip_network
from urllib.request import getproxies
from weakref import WeakKeyDictionary

import aiohttp
import httpx2
from pydantic import SecretStr

from ...shared.fleet import own_version
from ...shared.masking import SecretMask
from ...shared.settings import header_pairs, secrets_of
from ..web.dial import trust_store
from .retry import Failure, RetryPolicy

DRAIN_SECONDS = 1.0
"""How long to read for the end of the HTTP body after the last event, so that the connection can be reused."""
CHUNK_BYTES = 16 * 1024
IDLE_SECONDS = 30.0
"""How long an idle connection is kept open: longer than most tools run between two turns."""
ANTHROPIC_HOST = "api.anthropic.com"
API_VERSION = "2026-10-21"
MAX_PORT = 65_535
PROXY_REFUSALS = {401, 403, 407}
PROXY_ADVICE = "Set HTTPS_PROXY, HTTP_PROXY or ALL_PROXY to an HTTP proxy, or add the endpoint's host to NO_PROXY."
INVALID_HEADER_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
VARIABLES = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS")


class Credentials:
    """The endpoint's address and credentials, by the SDK's environment variables.

    An API key takes precedence over an auth token; without both, the SDK looks for others.
    """

    def __init__(self, variables: Mapping[str, SecretStr]) -> None:
        self._variables = {name: variables[name] for name in VARIABLES if variables.get(name)}
        if "ANTHROPIC_API_KEY" in self._variables:
            self._variables.pop("ANTHROPIC_AUTH_TOKEN", None)
        self.id = self.digest("")

    def get(self, name: str) -> str | None:
        return self._variables[name].get_secret_value() if name in self._variables else None

    @property
    def token(self) -> str | None:
        """The key or the token; None: the SDK looks for credentials."""
        return self.get("ANTHROPIC_API_KEY") or self.get("ANTHROPIC_AUTH_TOKEN")

    def digest(self, model: str) -> str:
        """Returns a name for this address, these credentials and a model that reveals none of them."""
        return sha256(repr((model, *map(self.get, VARIABLES))).encode()).hexdigest()[:32]

    def masked(self, text: str) -> str:
        """Returns the text with the credentials masked, because endpoints may quote them in error messages."""
        return SecretMask(secrets_of({name: self.get(name) or "" for name in self._variables})).text(text)


class Endpoint:
    """The client of one endpoint on one event loop. Raises ValueError where it is misconfigured."""

    def __init__(self, credentials: Credentials, retry_policy: RetryPolicy) -> None:
        given = credentials.get("ANTHROPIC_BASE_URL")
        self._auth, address, headers = _of_sdk(given) if credentials.token is None else (None, given, {})
        base = httpx2.URL(f"{(address or f'https://{ANTHROPIC_HOST}').removesuffix('/')}/")
        if credentials.token is not None:
            headers = {**_OWN_HEADERS, "authorization": f"Bearer {credentials.token}"}
            headers["user-agent"] = f"deputize/{own_version()}"
        headers.update(header_pairs(credentials.get("ANTHROPIC_CUSTOM_HEADERS") or ""))
        self._headers = {name.lower(): value for name, value in headers.items()}
        if any(INVALID_HEADER_CHARACTERS.search(value) for value in self._headers.values()):
            raise ValueError(
                "a header cannot be sent: look for line ends or control characters in ANTHROPIC_API_KEY, "
                "ANTHROPIC_AUTH_TOKEN and ANTHROPIC_CUSTOM_HEADERS."
            )
        public = base.copy_with(userinfo=b"")
        if base.scheme not in ("http", "https") or not base.host:
            raise ValueError(f"ANTHROPIC_BASE_URL is {str(public)!r}, but must begin with http:// or https://.")
        if base.userinfo and not self._auth:
            login = b64encode(f"{base.username}:{base.password}".encode()).decode()
            self._headers["authorization"] = f"Basic {login}"
        # Compression delays small events until a block is full.
        self._headers["accept-encoding"] = "identity"
        self.url = str(public.join("v1/messages"))
        self._proxy = _proxy(base)
        self.route = f"{self.url} through the proxy {self._proxy.copy_with(userinfo=b'')}" if self._proxy else self.url
        """The address and how it is reached, for errors of the connection."""
        self.is_anthropic = base.host == ANTHROPIC_HOST
        signed = self._headers.get("authorization") or self._headers.get("x-api-key")
        self.has_credentials = bool(self._auth or signed or given)
        self._retry_policy = retry_policy
        # The number of runs bounds the connections.
        connector = aiohttp.TCPConnector(ssl=trust_store(), limit=0, keepalive_timeout=IDLE_SECONDS)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=retry_policy.connect_timeout, sock_read=retry_policy.read_timeout
        )
        self._http = aiohttp.ClientSession(connector=connector, timeout=timeout)

    @asynccontextmanager
    async def post(self, body: bytes) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Sends one request; the response is closed on exit, even if it was not read.

        Raises Failure where the connection fails, also while the response is read, and where the SDK has no token.
        """
        headers = await _signed(self._auth, self.url, self._headers) if self._auth else self._headers
        proxy = str(self._proxy) if self._proxy else None
        try:
            async with self._http.post(self.url, data=body, headers=headers, proxy=proxy) as response:
                yield response
        except aiohttp.ClientError as error:
            raise _classified(error, self.route, self._retry_policy) from None

    async def aclose(self) -> None:
        await self._http.close()


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
        client = AsyncAnthropic(base_url=base)
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


def _classified(error: aiohttp.ClientError, url: str, retry_policy: RetryPolicy) -> Failure:
    """Returns the failure for a connection error. All are temporary but those that the configuration causes."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Failure(
            f"the certificate of {url} is not trusted: {error}. Check ANTHROPIC_BASE_URL, or name the certificate "
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
            advice = " Check the user and password in HTTPS_PROXY, and what the proxy allows." if refused else ""
            return Failure(f"no connection to {url}: it answered {reason}.{advice}", retryable=not refused)
        case aiohttp.InvalidURL() | aiohttp.TooManyRedirects():
            return Failure(f"{reason} Check ANTHROPIC_BASE_URL ({url}).", retryable=False)
        case aiohttp.ClientConnectionError():
            reason = f"no connection to {url}: {reason}"
        case _:
            reason = f"the connection to {url} broke: {reason}"
    return Failure(reason, retryable=True)
