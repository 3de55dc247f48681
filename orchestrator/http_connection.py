"""One HTTP connection pool to a service: its errors as ours, JSON responses, and event streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx2
from pydantic import ValidationError

from ..shared.errors import (
    Conflict,
    Invalid,
    KeyReused,
    Misconfigured,
    NotFound,
    OutOfSpace,
    Refused,
    ScopeMissing,
    SpendCapReached,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from ..shared.events import Envelope
from ..shared.fleet import VERSION_HEADER, own_version
from ..shared.log import log
from ..shared.text import visible
from ..shared.wire import LONGEST_SHOWN

T = TypeVar("T")

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0
SILENCE_SECONDS = 45.0
"""Seconds without data, three missed keepalives, after which a stream's connection counts as dead."""
REMEDY = "start one with `deputize up` or set DEPUTIZE_URL"

ERRORS: dict[int, type[Refused]] = {
    401: Unauthorized,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: Invalid,
    429: SpendCapReached,
}
NAMED: dict[str, type[Refused]] = {"key-reused": KeyReused, "scope-missing": ScopeMissing}
"""Errors whose status is that of another one, by the end of their type."""


class HttpConnection:
    """Sends requests to one service.

    Raises the ``Refused`` tree as the service does, Unavailable if it cannot connect.
    """

    version = ""
    """That of the service, as its last response has it."""

    def __init__(self, url: str, token: str | None = None) -> None:
        scheme, host = _address(url)
        self.url = url.rstrip("/")
        try:
            self._http = httpx2.AsyncClient(
                base_url=self.url,
                headers={b"Authorization": b"Bearer " + _header(token)} if token else None,
                timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
                limits=httpx2.Limits(max_connections=None),
                event_hooks={"response": [self._note_version]},
                verify=tls_context(scheme),
                # A proxy of the environment cannot reach this machine's loopback.
                trust_env=host not in ("127.0.0.1", "localhost", "::1"),
            )
        except (ImportError, ValueError):
            raise Misconfigured(
                f"{_proxies()} does not name an HTTP proxy, and other kinds are not supported. Set it to "
                f"http://host:port, or add {host} to NO_PROXY"
            ) from None

    async def close(self) -> None:
        await self._http.aclose()

    async def stream(self, path: str, after: int) -> AsyncGenerator[Envelope]:
        """Yields the events of one stream after ``after`` until it ends or breaks."""
        timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        async with self._http.sse(path, headers={"Last-Event-ID": str(after)}, timeout=timeout) as source:
            await self._check(source.response)
            async for frame in source:
                try:
                    yield Envelope.from_json(frame.data)
                except ValidationError:
                    continue  # a newer service may have event types that this version does not know

    async def send(self, method: str, path: str, **request: Any) -> httpx2.Response:
        """Returns a successful response; ``request`` holds further arguments of ``httpx2.AsyncClient.request``."""
        if "content" in request:
            request["headers"] = {"Content-Type": "application/json"}
        try:
            answer = await self._http.request(method, path, **request)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self.unreachable(error) from None
        await self._check(answer)
        return answer

    async def download(self, path: str, **params: Any) -> AsyncGenerator[bytes]:
        """Yields the bytes of a response as they come. Raises Unavailable if it breaks off."""
        try:
            async with self._http.stream("GET", path, params=params) as answer:
                await self._check(answer)
                async for chunk in answer.aiter_bytes():
                    yield chunk
        except httpx2.HTTPError as error:
            raise self.unreachable(error) from None

    def read(self, answer: httpx2.Response, convert: Callable[[Any], T]) -> T:
        """Returns the response's value. Raises Unavailable if it is not a response of this service."""
        try:
            return convert(answer.json())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Unavailable(
                f"{self.url} answered {answer.request.url.path} with something else than this service does; {REMEDY}"
            ) from None

    async def _note_version(self, answer: httpx2.Response) -> None:
        version = answer.headers.get(VERSION_HEADER, self.version)
        if version not in (self.version, own := own_version()):
            message = "this is deputize %s, the service %s; they may misunderstand each other"
            log.warning(message, own, visible(version[:LONGEST_SHOWN]))
        self.version = version

    async def _check(self, answer: httpx2.Response) -> None:
        if answer.is_success:
            return
        await answer.aread()
        try:
            problem = answer.json()
            detail, errors, kind = str(problem["detail"]), list(problem["errors"]), str(problem["type"])
        except (ValueError, KeyError, TypeError):
            raise Unavailable(
                f"{self.url} answered {answer.status_code} and is not a deputize service; {REMEDY}"
            ) from None
        if answer.status_code >= 500:
            raise (OutOfSpace if answer.status_code == 507 else Unavailable)(detail)
        known = NAMED.get(kind.rpartition(":")[2]) or ERRORS.get(answer.status_code, Refused)
        raise known(detail, errors)

    def unreachable(self, error: Exception) -> Unavailable:
        """Returns the error as one that names the service and the remedy."""
        if isinstance(error, Unavailable):
            return error
        through = f" through the proxy of {_proxies()}" if self._uses_proxy else ""
        return Unavailable(
            f"no service answers at {self.url}{through} ({str(error) or type(error).__name__}); {REMEDY}"
        )

    @property
    def _uses_proxy(self) -> bool:
        # There is no public way to ask.
        used = self._http._transport_for_url(httpx2.URL(self.url))  # pyright: ignore[reportPrivateUsage]
        return used is not self._http._transport  # pyright: ignore[reportPrivateUsage]


def _proxies() -> str:
    """Returns the variables that name proxies of the environment."""
    return ", ".join(f"{scheme.upper()}_PROXY" for scheme in getproxies() if scheme in ("http", "https", "all"))


def tls_context(scheme: str) -> SSLContext:
    """Returns the context for a scheme: for plain HTTP an empty one, as loading the authorities takes 10 ms of CPU."""
    return httpx2.create_ssl_context() if scheme == "https" else SSLContext(PROTOCOL_TLS_CLIENT)


def _address(url: str) -> tuple[str, str]:
    """Returns scheme and host."""
    try:
        address = urlsplit(url)
        if address.scheme in ("http", "https") and address.hostname and (address.port is None or address.port):
            return address.scheme, address.hostname
    except ValueError:
        pass
    raise Misconfigured(f"{url!r} is not a service URL; DEPUTIZE_URL looks like http://127.0.0.1:8642")


def _header(token: str) -> bytes:
    try:
        return token.encode()
    except UnicodeEncodeError:
        raise Misconfigured("DEPUTIZE_TOKEN holds characters that no header can carry; see how it was set") from None
