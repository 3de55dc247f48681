"""The service's operations over HTTP: same names, same errors, and streams that reconnect."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import cache, partial
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from types import NoneType
from typing import Any, Self, TypeVar, cast, get_origin
from urllib.parse import quote
from urllib.request import getproxies

import httpx2
from pydantic import TypeAdapter

from ..shared import traceparent
from ..shared.background import Backoff
from ..shared.delegation import Delegation, Status
from ..shared.disk_usage import Pruned
from ..shared.errors import (
    Conflict,
    InboxFull,
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
from ..shared.events import Envelope, RunFinished
from ..shared.fleet import VERSION_HEADER, own_version
from ..shared.log import log
from ..shared.request import DelegationRequest
from ..shared.text import visible
from ..shared.wire import LONGEST_SHOWN
from .operation import Operation, types_of
from .operations import AcceptedDelegation, PageOf, Service
from .sockets import scheme_and_host
from .uploads import AcceptedUpload, Upload

T = TypeVar("T")

CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 60.0
SILENCE_SECONDS = 45.0
"""Seconds without data, three missed keepalives, after which a stream's connection counts as dead."""
REMEDY = "start one with `deputize up` or set DEPUTIZE_URL"

_KINDS: tuple[type[Refused], ...] = (Unauthorized, NotFound, Conflict, TooLarge, Invalid, SpendCapReached)
ERRORS = {kind.status: kind for kind in _KINDS}
NAMED: dict[str, type[Refused]] = {"key-reused": KeyReused, "scope-missing": ScopeMissing, "inbox-full": InboxFull}
"""Errors whose status is that of another one, by the end of their type."""
PATIENCE_SECONDS = 60.0
"""Seconds for which a broken stream is reconnected before the caller gets an error."""
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.1, 5.0
"""Between two connections of a stream."""
FULL_SECONDS = 1.0
"""Seconds for which a full disk is retried: it is seldom freed during a wait."""
MAX_WAIT_SECONDS = 60.0
MAX_CONCURRENT = 20


class _NothingFollows(Exception):
    """The run has ended, and no event follows the one that was resumed from."""


class Client(Service):
    """The service at an address. Raises Unavailable if it cannot connect."""

    version = ""
    """That of the service, as its last response has it."""
    trace = ""
    """The ``traceparent`` of requests that are part of no trace of this process."""

    def __init__(self, url: str, token: str | None = None, *, patience: float = PATIENCE_SECONDS) -> None:
        scheme, host = scheme_and_host(url)
        self.url = url.rstrip("/")
        self._patience = patience
        self.on_connection: Callable[[Unavailable | None], None] = lambda _: None
        """Called with the reason whenever a broken stream finds no service again, and with None where one is open."""
        headers = {b"Authorization": b"Bearer " + token.encode()} if token else None
        try:
            self._http = httpx2.AsyncClient(
                base_url=self.url,
                headers=headers,
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def upload(self, content: AsyncIterable[bytes], sha256: str | None = None) -> AcceptedUpload:
        params = {"sha256": sha256} if sha256 else {}
        answer = await self._send("PUT", "/v1/uploads", content=content, params=params)
        return AcceptedUpload(self._value(answer, Upload.model_validate), answer.status_code == 200)

    async def create_many(self, requests: Sequence[DelegationRequest]) -> list[Delegation]:
        body = ",".join(request.given_json() for request in requests)
        content = f'{{"requests":[{body}]}}'
        read = _reader(list[Delegation])

        def as_many(body: Any) -> list[Delegation]:
            if len(found := read(body["items"])) != len(requests):
                raise ValueError("another number of delegations")
            return found

        return await self._read("POST", "/v1/delegations:batch", as_many, content=content)

    async def get(self, id: str, wait: float = 0) -> Delegation:
        """Returns the delegation when it is finished, or after ``wait`` seconds, at most 60."""
        wait = min(wait, MAX_WAIT_SECONDS)
        timeout = httpx2.Timeout(ANSWER_SECONDS + wait, connect=CONNECT_SECONDS)
        request = {"timeout": timeout, "params": {"wait": wait} if wait > 0 else {}}
        return await self._read("GET", f"/v1/delegations/{id}", _reader(Delegation), **request)

    async def list(
        self,
        *,
        status: Status | None = None,
        session: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 50,
        cursor: str | None = None,
        parent: str | None = None,
        for_review: bool = False,
    ) -> PageOf:
        filters = {"status": status, "session": session, "parent": parent, "cursor": cursor, "forReview": for_review}
        params: dict[str, Any] = {name: value for name, value in filters.items() if value}
        params |= {"limit": limit, "label": [f"{key}:{value}" for key, value in (labels or {}).items()]}
        return await self._read("GET", "/v1/delegations", _reader(PageOf), params=params)

    async def events(self, id: str, after: int = 0) -> list[Envelope]:
        return [each for each in await self._events(id, _envelope, after) if each]

    async def plain_events(self, id: str) -> list[dict[str, Any]]:
        """Returns the stored events as they are sent: for thousands of them, reading them as models takes seconds."""
        return await self._events(id, dict)

    async def file(self, id: str, path: str, *, base: bool = False) -> AsyncGenerator[bytes]:
        url = f"/v1/delegations/{id}/files/{quote(os.fsencode(path))}"
        try:
            async with self._http.stream("GET", url, params={"base": base}) as answer:
                await self._check(answer)
                async for chunk in answer.aiter_bytes():
                    yield chunk
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None

    async def cancel_all(self, ids: Iterable[str]) -> None:
        """Cancels each; a few at a time, because a service limits its connections."""
        gate = asyncio.Semaphore(MAX_CONCURRENT)

        async def cancel(id: str) -> None:
            async with gate:
                await self.cancel(id)

        await asyncio.gather(*map(cancel, ids))

    async def not_ready(self) -> str | None:
        try:
            await self._send("GET", "/readyz")
        except Unavailable as error:
            return str(error)
        return None

    async def prune(
        self, older_than: float | None = None, keep_bytes: int | None = None, *, dry_run: bool = False
    ) -> Pruned:
        body = json.dumps({"olderThanSeconds": older_than, "keepBytes": keep_bytes, "dryRun": dry_run})
        return await self._read("POST", "/v1/delegations:prune", Pruned.model_validate, content=body)

    async def follow(self, id: str, after: int = 0) -> AsyncGenerator[Envelope]:
        """Yields the events; a broken stream is resumed where it broke, with exponential back-off.

        Raises Unavailable after ``patience`` seconds without a connection.
        """
        backoff = Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
        broken_since: float | None = None
        while True:
            try:
                async with aclosing(self._stream(f"/v1/delegations/{id}/events", after)) as envelopes:
                    async for envelope in envelopes:
                        backoff.reset()
                        broken_since = None
                        if envelope.seq is not None and envelope.seq <= after:
                            continue
                        after = envelope.seq or after
                        yield envelope
                        if isinstance(envelope.event, RunFinished):
                            return
            except _NothingFollows:
                return
            except (httpx2.HTTPError, httpx2.SSEError, Unavailable) as error:
                cause = self._unreachable(error)
                if broken_since is not None:  # the first time, it may have been this stream alone
                    self.on_connection(cause)
                broken_since = broken_since or time.monotonic()
                patience = min(self._patience, FULL_SECONDS) if isinstance(cause, OutOfSpace) else self._patience
                if time.monotonic() + backoff.delay - broken_since > patience:
                    raise cause from None
            await backoff.wait()

    async def follow_all(self) -> AsyncGenerator[Envelope]:
        """Yields new events of all delegations. Raises Unavailable when the stream breaks."""
        try:
            async with aclosing(self._stream("/v1/events", 0)) as envelopes:
                async for envelope in envelopes:
                    yield envelope
        except (httpx2.HTTPError, httpx2.SSEError) as error:
            raise self._unreachable(error) from None

    async def _perform(self, operation: Operation, given: dict[str, Any]) -> Any:
        path, query, body = operation.request(given)
        timeout = httpx2.Timeout(operation.seconds, connect=CONNECT_SECONDS)
        answer = await self._send(operation.method, path, params=query, content=body, timeout=timeout)
        kind = types_of(getattr(Service, operation.name))["return"]
        if kind is AcceptedDelegation:
            return AcceptedDelegation(self._value(answer, _reader(Delegation)), "Idempotent-Replayed" in answer.headers)
        if kind is NoneType:
            return None
        return answer.text if kind is str else self._value(answer, _reader(kind))

    async def _read(self, method: str, path: str, convert: Callable[[Any], T], **request: Any) -> T:
        return self._value(await self._send(method, path, **request), convert)

    async def _events(self, id: str, convert: Callable[[Any], T], after: int = 0) -> list[T]:
        headers, params = {"Accept": "application/json"}, {"after": after}
        path = f"/v1/delegations/{id}/events"
        return await self._read("GET", path, partial(_each, convert), headers=headers, params=params)

    async def _stream(self, path: str, after: int) -> AsyncGenerator[Envelope]:
        """Yields the events of one stream after ``after`` until it ends or breaks. Raises _NothingFollows."""
        timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        async with self._http.sse(path, headers={"Last-Event-ID": str(after)}, timeout=timeout) as source:
            await self._check(source.response)
            if source.response.status_code == 204:
                raise _NothingFollows
            self.on_connection(None)  # and not with the next event: a run that waits may have none for long
            async for frame in source:
                if envelope := Envelope.read(frame.data):
                    yield envelope

    async def _send(self, method: str, path: str, **request: Any) -> httpx2.Response:
        """Returns a successful response; ``request`` holds further arguments of ``httpx2.AsyncClient.request``."""
        headers: dict[str, str] = request.setdefault("headers", {})
        if isinstance(request.get("content"), str):
            headers["Content-Type"] = "application/json"
        headers |= {traceparent.HEADER: trace} if (trace := traceparent.current() or self.trace) else {}
        try:
            try:
                answer = await self._http.request(method, path, **request)
            except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
                if method != "GET":  # it may have been done
                    raise
                answer = await self._http.request(method, path, **request)  # an unused connection was closed meanwhile
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._unreachable(error) from None
        await self._check(answer)
        return answer

    def _value(self, answer: httpx2.Response, convert: Callable[[Any], T]) -> T:
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

    def _unreachable(self, error: Exception) -> Unavailable:
        """Returns the error as one that names the service and the remedy."""
        if isinstance(error, Unavailable):
            return error
        # There is no public way to ask.
        used = self._http._transport_for_url(httpx2.URL(self.url))  # pyright: ignore[reportPrivateUsage]
        is_proxy = used is not self._http._transport  # pyright: ignore[reportPrivateUsage]
        via = f" through the proxy of {_proxies()}" if is_proxy else ""
        return Unavailable(f"no service answers at {self.url}{via} ({str(error) or type(error).__name__}); {REMEDY}")


def _each(convert: Callable[[Any], T], items: object) -> list[T]:
    if not isinstance(items, list):
        raise TypeError("not a list")
    return [convert(item) for item in cast("list[object]", items)]


def _envelope(item: object) -> Envelope | None:
    return Envelope.read(json.dumps(item))


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Returns what reads a value, a list also as ``items``; a newer service may have accepted more fields."""
    read, is_list = partial(TypeAdapter(kind).validate_python, extra="ignore"), get_origin(kind) is list
    return lambda body: read(body["items"] if is_list and isinstance(body, dict) else body)


def _proxies() -> str:
    """Returns the variables that name proxies of the environment."""
    return ", ".join(f"{scheme.upper()}_PROXY" for scheme in getproxies() if scheme in ("http", "https", "all"))


def tls_context(scheme: str) -> SSLContext:
    """Returns the context for a scheme: for plain HTTP an empty one, as loading the authorities takes 10 ms of CPU."""
    return httpx2.create_ssl_context() if scheme == "https" else SSLContext(PROTOCOL_TLS_CLIENT)
