"""The service's operations over HTTP: same names, same errors, and streams that reconnect."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from urllib.parse import quote
from urllib.request import getproxies

import httpx2
from pydantic import BaseModel

from ..shared import traceparent
from ..shared.background import Backoff
from ..shared.delegation import Delegation, Status, StatusCounts, ToolAgentStep
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
from ..shared.fleet import VERSION_HEADER, ToolCard, WorkerCard, own_version
from ..shared.log import log
from ..shared.message import MessageMode, SentMessage
from ..shared.permission import PermissionOutcome, PermissionRequest
from ..shared.request import DelegationRequest, Deliver, Limits, MergeRequest
from ..shared.runs.cost import CostReport
from ..shared.text import visible
from ..shared.wire import LONGEST_SHOWN
from .audit_log import AuditPage
from .service import AcceptedDelegation, Items, MergeReport, PageOf, Service
from .sockets import scheme_and_host
from .uploads import AcceptedUpload, Upload
from .workspace_files import FileList

if TYPE_CHECKING:
    from ..shared.runs.disk import DiskUsage, Pruned
    from ..shared.runs.webhooks import Notification

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

CONNECT_SECONDS, ANSWER_SECONDS, DELIVERY_SECONDS = 5.0, 60.0, 300.0
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
        """Called with the reason whenever a broken stream finds no service again, and with None at each event."""
        try:
            headers = {b"Authorization": b"Bearer " + token.encode()} if token else None
        except UnicodeEncodeError:
            raise Misconfigured(
                "DEPUTIZE_TOKEN holds characters that no header can carry; see how it was set"
            ) from None
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

    async def create(self, request: DelegationRequest) -> AcceptedDelegation:
        return await self._accepted("/v1/delegations", request.given_json())

    async def create_many(self, requests: Sequence[DelegationRequest]) -> list[Delegation]:
        body = ",".join(request.given_json() for request in requests)
        content = f'{{"requests":[{body}]}}'
        return (await self._read("POST", "/v1/delegations:batch", _read_as(Items), content=content)).items

    async def continue_(
        self, id: str, text: str, limits: Limits | None = None, *, idempotency_key: str | None = None
    ) -> AcceptedDelegation:
        body = {"text": text, "limits": limits.to_dict() if limits else None, "idempotencyKey": idempotency_key}
        return await self._accepted(f"/v1/delegations/{id}/continue", json.dumps(body))

    async def retry(
        self, id: str, *, from_turn: int | None = None, idempotency_key: str | None = None
    ) -> AcceptedDelegation:
        body = {"fromTurn": from_turn, "idempotencyKey": idempotency_key}
        return await self._accepted(f"/v1/delegations/{id}/retry", json.dumps(body))

    async def get(self, id: str, wait: float = 0) -> Delegation:
        """Returns the delegation when it is finished, or after ``wait`` seconds, at most 60."""
        wait = min(wait, MAX_WAIT_SECONDS)
        timeout = httpx2.Timeout(ANSWER_SECONDS + wait, connect=CONNECT_SECONDS)
        request = {"timeout": timeout, "params": {"wait": wait} if wait > 0 else {}}
        return await self._read("GET", f"/v1/delegations/{id}", _read_as(Delegation), **request)

    async def list(
        self,
        *,
        status: Status | None = None,
        session: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 50,
        cursor: str | None = None,
        parent: str | None = None,
    ) -> PageOf:
        filters = {"status": status, "session": session, "parent": parent, "cursor": cursor}
        given = {name: value for name, value in filters.items() if value}
        label = [f"{key}:{value}" for key, value in (labels or {}).items()]
        return await self._get("/v1/delegations", _read_as(PageOf), limit=limit, label=label, **given)

    async def events(self, id: str, after: int = 0) -> list[Envelope]:
        return [each for each in await self._events(id, _envelope, after) if each]

    async def plain_events(self, id: str) -> list[dict[str, Any]]:
        """Returns the stored events as they are sent: for thousands of them, reading them as models takes seconds."""
        return await self._events(id, dict)

    async def steps(self, id: str) -> list[ToolAgentStep]:
        return await self._get(f"/v1/delegations/{id}/steps", partial(_each, ToolAgentStep.model_validate))

    async def patch(self, id: str) -> str:
        return (await self._send("GET", f"/v1/delegations/{id}/patch")).text

    async def artifact(self, id: str, name: str, version: int | None = None) -> str:
        path = f"/v1/delegations/{id}/artifacts/{quote(name, safe='')}"
        return (await self._send("GET", path, params={"version": version} if version else {})).text

    async def files(self, id: str, *, base: bool = False) -> FileList:
        return await self._get(f"/v1/delegations/{id}/files", FileList.model_validate, base=base)

    async def file(self, id: str, path: str, *, base: bool = False) -> AsyncGenerator[bytes]:
        url = f"/v1/delegations/{id}/files/{quote(os.fsencode(path))}"
        try:
            async with self._http.stream("GET", url, params={"base": base}) as answer:
                await self._check(answer)
                async for chunk in answer.aiter_bytes():
                    yield chunk
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None

    async def cancel(self, id: str) -> Delegation:
        return await self._read("POST", f"/v1/delegations/{id}/cancel", _read_as(Delegation))

    async def cancel_all(self, ids: Iterable[str]) -> None:
        """Cancels each; a few at a time, because a service limits its connections."""
        gate = asyncio.Semaphore(MAX_CONCURRENT)

        async def cancel(id: str) -> None:
            async with gate:
                await self.cancel(id)

        await asyncio.gather(*map(cancel, ids))

    async def send(
        self, id: str, text: str = "", mode: MessageMode = MessageMode.STEER, *, by: str | None = None
    ) -> SentMessage:
        path, body = f"/v1/delegations/{id}/messages", json.dumps({"text": text, "mode": mode})
        return await self._read("POST", path, SentMessage.model_validate, content=body)

    async def resume(self, id: str) -> Delegation:
        return await self._read("POST", f"/v1/delegations/{id}/resume", _read_as(Delegation))

    async def deliver(self, id: str, wanted: Deliver | None = None) -> Delegation:
        body = wanted.model_dump_json(by_alias=True, exclude_unset=True) if wanted else "{}"
        path, patient = f"/v1/delegations/{id}/deliver", httpx2.Timeout(DELIVERY_SECONDS)
        return await self._read("POST", path, _read_as(Delegation), content=body, timeout=patient)

    async def merge(self, wanted: MergeRequest) -> MergeReport:
        body, patient = wanted.model_dump_json(by_alias=True, exclude_unset=True), httpx2.Timeout(DELIVERY_SECONDS)
        return await self._read("POST", "/v1/merges", _read_as(MergeReport), content=body, timeout=patient)

    async def answer_permission(
        self,
        id: str,
        outcome: PermissionOutcome | str,
        *,
        reason: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> None:
        """Answers a call that waits for permission; also with an alias: ``approve``, ``deny``, …"""
        body = json.dumps({"outcome": outcome, "reason": reason, "arguments": arguments})
        await self._send("POST", f"/v1/permissions/{quote(id, safe='')}", content=body)

    async def not_ready(self) -> str | None:
        try:
            await self._send("GET", "/readyz")
        except Unavailable as error:
            return str(error)
        return None

    async def permissions(self, delegation: str | None = None) -> list[PermissionRequest]:
        params = {"delegation": delegation} if delegation else {}
        read = partial(_each, PermissionRequest.model_validate)
        return await self._get("/v1/permissions", lambda body: read(body["items"]), **params)

    async def webhooks(self, delegation: str | None = None) -> list[Notification]:
        from ..shared.runs.webhooks import Notification

        params = {"delegation": delegation} if delegation else {}
        read = partial(_each, Notification.model_validate)
        return await self._get("/v1/webhooks", lambda body: read(body["items"]), **params)

    async def redeliver(self, id: str) -> None:
        await self._send("POST", f"/v1/delegations/{id}/webhooks:redeliver")

    async def prune(
        self, older_than: float | None = None, keep_bytes: int | None = None, *, dry_run: bool = False
    ) -> Pruned:
        from ..shared.runs.disk import Pruned  # imports the Redis client, which most commands do not need

        body = json.dumps({"olderThanSeconds": older_than, "keepBytes": keep_bytes, "dryRun": dry_run})
        return await self._read("POST", "/v1/delegations:prune", Pruned.model_validate, content=body)

    async def counts(self) -> StatusCounts:
        return await self._get("/v1/delegations:count", StatusCounts.model_validate)

    async def disk(self) -> DiskUsage:
        from ..shared.runs.disk import DiskUsage

        return await self._get("/v1/disk", DiskUsage.model_validate)

    async def cost(self, by: str = "day", since: datetime | None = None) -> CostReport:
        params = {"since": since.isoformat()} if since else {}
        return await self._get("/v1/cost", CostReport.model_validate, by=by, **params)

    async def audit(self, limit: int = 50, cursor: str | None = None) -> AuditPage:
        params = {"cursor": cursor} if cursor else {}
        return await self._get("/v1/audit", AuditPage.model_validate, limit=limit, **params)

    async def workers(self) -> list[WorkerCard]:
        return await self._get("/v1/workers", partial(_each, WorkerCard.model_validate))

    async def drain(self, name: str) -> WorkerCard:
        return await self._read("POST", f"/v1/workers/{quote(name, safe='')}/drain", WorkerCard.model_validate)

    async def tools(self) -> list[ToolCard]:
        return await self._get("/v1/tools", partial(_each, ToolCard.model_validate))

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
                        self.on_connection(None)
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

    async def _read(self, method: str, path: str, convert: Callable[[Any], T], **request: Any) -> T:
        return self._value(await self._send(method, path, **request), convert)

    async def _get(self, path: str, convert: Callable[[Any], T], **params: Any) -> T:
        return await self._read("GET", path, convert, params=params)

    async def _events(self, id: str, convert: Callable[[Any], T], after: int = 0) -> list[T]:
        headers, params = {"Accept": "application/json"}, {"after": after}
        path = f"/v1/delegations/{id}/events"
        return await self._read("GET", path, partial(_each, convert), headers=headers, params=params)

    async def _accepted(self, path: str, content: str) -> AcceptedDelegation:
        answer = await self._send("POST", path, content=content)
        delegation = self._value(answer, _read_as(Delegation))
        return AcceptedDelegation(delegation, "Idempotent-Replayed" in answer.headers)

    async def _stream(self, path: str, after: int) -> AsyncGenerator[Envelope]:
        """Yields the events of one stream after ``after`` until it ends or breaks. Raises _NothingFollows."""
        timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        async with self._http.sse(path, headers={"Last-Event-ID": str(after)}, timeout=timeout) as source:
            await self._check(source.response)
            if source.response.status_code == 204:
                raise _NothingFollows
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
            answer = await self._http.request(method, path, **request)
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


def _read_as(model: type[M]) -> Callable[[Any], M]:
    """Returns what reads a model; requests inside that a newer service has accepted may have more fields."""
    return partial(model.model_validate, extra="ignore")


def _proxies() -> str:
    """Returns the variables that name proxies of the environment."""
    return ", ".join(f"{scheme.upper()}_PROXY" for scheme in getproxies() if scheme in ("http", "https", "all"))


def tls_context(scheme: str) -> SSLContext:
    """Returns the context for a scheme: for plain HTTP an empty one, as loading the authorities takes 10 ms of CPU."""
    return httpx2.create_ssl_context() if scheme == "https" else SSLContext(PROTOCOL_TLS_CLIENT)
