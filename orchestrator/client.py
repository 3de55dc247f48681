"""The service's operations over HTTP: same names, same errors, and streams that reconnect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from urllib.parse import quote, urlsplit

import httpx2
from pydantic import ValidationError

from orchestrator.reconnect import ReconnectPolicy
from shared.delegation import Delegation, DelegationRequest, Status, ToolAgentStep
from shared.errors import (
    Conflict,
    Invalid,
    KeyReused,
    Misconfigured,
    NotFound,
    OutOfSpace,
    Refused,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from shared.events import Envelope, RunFinished

if TYPE_CHECKING:
    from shared.catalog import ToolCard, WorkerCard

T = TypeVar("T")

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0
SILENCE_SECONDS = 45.0
"""Seconds without data, three missed keepalives, after which a stream's connection counts as dead."""
PATIENCE_SECONDS = 60.0
"""Seconds for which a broken stream is reconnected before the caller gets an error."""
MAX_WAIT_SECONDS = 60.0
MAX_CONCURRENT = 20
REMEDY = "start one with `deputize up` or set DEPUTIZE_URL"

ERRORS: dict[int, type[Refused]] = {
    401: Unauthorized,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: Invalid,
}


@dataclass(frozen=True, slots=True)
class DelegationPage:
    items: list[Delegation]
    next_cursor: str | None


class Client:
    """A client of one service. Raises the ``Refused`` tree as the service does, Unavailable if it cannot connect."""

    def __init__(self, url: str, token: str | None = None, *, patience: float = PATIENCE_SECONDS) -> None:
        host = _host(url)
        self.url = url.rstrip("/")
        self._patience = patience
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            headers={b"Authorization": b"Bearer " + _header(token)} if token else None,
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None),
            # A proxy of the environment cannot reach this machine's loopback.
            trust_env=host not in ("127.0.0.1", "localhost", "::1"),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def create(self, request: DelegationRequest) -> Delegation:
        return self._delegation(await self._send("POST", "/v1/delegations", content=request.to_json()))

    async def batch(self, requests: Sequence[DelegationRequest]) -> list[Delegation]:
        """Submits requests. Returns their delegations in order; all are accepted or none."""
        body = ",".join(request.to_json() for request in requests)
        answer = await self._send("POST", "/v1/delegations:batch", content=f'{{"requests":[{body}]}}')
        return self._read(answer, lambda body: _each(Delegation.model_validate, body["items"]))

    async def get(self, id: str, wait: float = 0) -> Delegation:
        """Returns the delegation; with ``wait`` when it is finished or after that many seconds, at most 60."""
        wait = min(wait, MAX_WAIT_SECONDS)
        timeout = httpx2.Timeout(ANSWER_SECONDS + wait, connect=CONNECT_SECONDS)
        params = {"wait": wait} if wait > 0 else {}
        return self._delegation(await self._send("GET", f"/v1/delegations/{id}", params=params, timeout=timeout))

    async def list(
        self,
        *,
        status: Status | None = None,
        session: str | None = None,
        labels: Mapping[str, str] | Sequence[str] = (),
        limit: int = 50,
        cursor: str | None = None,
    ) -> DelegationPage:
        """Returns a page, newest first; ``labels`` are a mapping, or texts ``key:value`` as the route reads them."""
        label = [f"{key}:{value}" for key, value in labels.items()] if isinstance(labels, Mapping) else [*labels]
        filters = {"status": status, "session": session, "cursor": cursor}
        params = {"limit": limit, "label": label, **{name: value for name, value in filters.items() if value}}
        answer = await self._send("GET", "/v1/delegations", params=params)
        return self._read(
            answer,
            lambda body: DelegationPage(_each(Delegation.model_validate, body["items"]), body["nextCursor"]),
        )

    async def events(self, id: str, after: int = 0) -> list[Envelope]:
        """Returns the stored events after ``after``."""
        answer = await self._send(
            "GET", f"/v1/delegations/{id}/events", params={"after": after}, headers={"Accept": "application/json"}
        )
        return self._read(answer, lambda body: _each(_envelope, body))

    async def steps(self, id: str) -> list[ToolAgentStep]:
        answer = await self._send("GET", f"/v1/delegations/{id}/steps")
        return self._read(answer, partial(_each, ToolAgentStep.model_validate))

    async def patch(self, id: str) -> str:
        return (await self._send("GET", f"/v1/delegations/{id}/patch")).text

    async def artifact(self, id: str, name: str, version: int | None = None) -> str:
        params = {"version": version} if version else {}
        return (await self._send("GET", f"/v1/delegations/{id}/artifacts/{quote(name, safe='')}", params=params)).text

    async def cancel(self, id: str) -> Delegation:
        return self._delegation(await self._send("POST", f"/v1/delegations/{id}/cancel"))

    async def cancel_all(self, ids: Iterable[str]) -> None:
        """Cancels each; a few at a time, because a service limits its connections."""
        gate = asyncio.Semaphore(MAX_CONCURRENT)

        async def cancel(id: str) -> None:
            async with gate:
                await self.cancel(id)

        await asyncio.gather(*map(cancel, ids))

    async def prune(self, older_than: float | None = None) -> int:
        """Returns the number of removed records; without ``older_than`` the service's setting applies."""
        body = json.dumps({"olderThanSeconds": older_than})
        answer = await self._send("POST", "/v1/delegations:prune", content=body)
        return self._read(answer, lambda body: int(body["removed"]))

    async def not_ready(self) -> str | None:
        """Returns why new work would only be queued (no worker, or no Redis), or None if the service is ready."""
        try:
            await self._send("GET", "/readyz")
        except Unavailable as error:
            return str(error)
        return None

    # Imported late: their module imports the Redis client, which most commands do not need.

    async def workers(self) -> list[WorkerCard]:
        from shared.catalog import WorkerCard

        answer = await self._send("GET", "/v1/workers")
        return self._read(answer, partial(_each, WorkerCard.model_validate))

    async def tools(self) -> list[ToolCard]:
        from shared.catalog import ToolCard

        answer = await self._send("GET", "/v1/tools")
        return self._read(answer, partial(_each, ToolCard.model_validate))

    async def follow(self, id: str, after: int = 0) -> AsyncGenerator[Envelope]:
        """Yields every event after ``after``, then the live ones, up to ``run_finished``.

        A broken stream is resumed where it broke, with exponential back-off. Raises Unavailable after ``patience``
        seconds without a connection.
        """
        reconnect = ReconnectPolicy(self._patience)
        while True:
            try:
                async with aclosing(self._stream(f"/v1/delegations/{id}/events", after)) as envelopes:
                    async for envelope in envelopes:
                        reconnect.reset()
                        if envelope.seq is not None and envelope.seq <= after:
                            continue
                        after = envelope.seq or after
                        yield envelope
                        if isinstance(envelope.event, RunFinished):
                            return
            except (httpx2.HTTPError, httpx2.SSEError, Unavailable) as error:
                reconnect.check(self._unreachable(error))
            await reconnect.wait()

    async def follow_all(self) -> AsyncGenerator[Envelope]:
        """Yields new events of all delegations. Raises Unavailable when the stream breaks."""
        try:
            async with aclosing(self._stream("/v1/events", 0)) as envelopes:
                async for envelope in envelopes:
                    yield envelope
        except (httpx2.HTTPError, httpx2.SSEError) as error:
            raise self._unreachable(error) from None

    async def _stream(self, path: str, after: int) -> AsyncGenerator[Envelope]:
        timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        async with self._http.sse(path, headers={"Last-Event-ID": str(after)}, timeout=timeout) as source:
            await self._check(source.response)
            async for frame in source:
                try:
                    yield Envelope.from_json(frame.data)
                except ValidationError:
                    continue  # a newer service may have event types that this version lacks

    async def _send(self, method: str, path: str, **request: Any) -> httpx2.Response:
        if "content" in request:
            request["headers"] = {"Content-Type": "application/json"}
        try:
            answer = await self._http.request(method, path, **request)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._unreachable(error) from None
        await self._check(answer)
        return answer

    def _delegation(self, answer: httpx2.Response) -> Delegation:
        return self._read(answer, Delegation.model_validate)

    def _read(self, answer: httpx2.Response, convert: Callable[[Any], T]) -> T:
        """Returns the response's value. Raises Unavailable if it is not a response of this service."""
        try:
            return convert(answer.json())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Unavailable(
                f"{self.url} answered {answer.request.url.path} with something else than this service does; {REMEDY}"
            ) from None

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
        known = KeyReused if kind.endswith(":key-reused") else ERRORS.get(answer.status_code, Refused)
        raise known(detail, errors)

    def _unreachable(self, error: Exception) -> Unavailable:
        if isinstance(error, Unavailable):
            return error
        return Unavailable(f"no service answers at {self.url} ({str(error) or type(error).__name__}); {REMEDY}")


def _each(convert: Callable[[Any], T], items: object) -> list[T]:
    if not isinstance(items, list):
        raise TypeError("not a list")
    return [convert(item) for item in cast("list[object]", items)]


def _envelope(item: object) -> Envelope:
    return Envelope.from_json(json.dumps(item))


def _host(url: str) -> str:
    try:
        address = urlsplit(url)
        if address.scheme in ("http", "https") and address.hostname and (address.port is None or address.port):
            return address.hostname
    except ValueError:
        pass
    raise Misconfigured(f"{url!r} is not a service URL; DEPUTIZE_URL looks like http://127.0.0.1:8642")


def _header(token: str) -> bytes:
    try:
        return token.encode()
    except UnicodeEncodeError:
        raise Misconfigured("DEPUTIZE_TOKEN holds characters that no header can carry; see how it was set") from None
