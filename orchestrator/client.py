"""The service's operations over HTTP: same names, same errors, and streams that reconnect."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from urllib.parse import quote

import httpx2

from ..shared.background import Backoff
from ..shared.delegation import Delegation, Status, ToolAgentStep
from ..shared.errors import OutOfSpace, Unavailable
from ..shared.events import Envelope, RunFinished
from ..shared.request import DelegationRequest, Limits
from .http_connection import ANSWER_SECONDS, CONNECT_SECONDS, HttpConnection
from .service import AcceptedDelegation, PageOf, Service
from .workspace_files import FileList

if TYPE_CHECKING:
    from datetime import datetime

    from ..shared.fleet import ToolCard, WorkerCard
    from ..shared.permission import PermissionOutcome, PermissionRequest
    from ..shared.runs.cost import CostReport
    from ..shared.runs.disk import DiskUsage, Pruned
    from .audit_log import AuditPage

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
"""Seconds for which a broken stream is reconnected before the caller gets an error."""
FULL_SECONDS = 1.0
"""Seconds for which a full disk is retried: it is seldom freed during a wait."""
MAX_WAIT_SECONDS = 60.0
MAX_CONCURRENT = 20


class ReconnectPolicy:
    """Exponential back-off between reconnects, and the number of seconds after which to give up."""

    FIRST, LONGEST = 0.1, 5.0

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._backoff = Backoff(self.FIRST, self.LONGEST)
        self.reset()

    def reset(self) -> None:
        """Resets the back-off, after data arrived."""
        self._backoff.reset()
        self._since: float | None = None

    def check(self, error: Unavailable) -> None:
        """Raises the error if the next attempt would be after the time to give up."""
        self._since = self._since or time.monotonic()
        seconds = min(self._seconds, FULL_SECONDS) if isinstance(error, OutOfSpace) else self._seconds
        if time.monotonic() + self._backoff.delay - self._since > seconds:
            raise error from None

    async def wait(self) -> None:
        await self._backoff.wait()


class Client(Service):
    """The service at an address."""

    def __init__(self, url: str, token: str | None = None, *, patience: float = PATIENCE_SECONDS) -> None:
        self._http = HttpConnection(url, token)
        self._patience = patience

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    @property
    def url(self) -> str:
        return self._http.url

    @property
    def version(self) -> str:
        """The version of the service; empty before its first response."""
        return self._http.version

    async def create(self, request: DelegationRequest) -> AcceptedDelegation:
        return self._accepted(await self._http.send("POST", "/v1/delegations", content=request.given_json()))

    async def create_many(self, requests: Sequence[DelegationRequest]) -> list[Delegation]:
        body = ",".join(request.given_json() for request in requests)
        answer = await self._http.send("POST", "/v1/delegations:batch", content=f'{{"requests":[{body}]}}')
        return self._http.read(answer, lambda body: _each(Delegation.model_validate, body["items"]))

    async def get(self, id: str, wait: float = 0) -> Delegation:
        """Returns the delegation; with ``wait`` when it is finished or after that many seconds, at most 60."""
        wait = min(wait, MAX_WAIT_SECONDS)
        timeout = httpx2.Timeout(ANSWER_SECONDS + wait, connect=CONNECT_SECONDS)
        params = {"wait": wait} if wait > 0 else {}
        return self._delegation(await self._http.send("GET", f"/v1/delegations/{id}", params=params, timeout=timeout))

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
        label = [f"{key}:{value}" for key, value in (labels or {}).items()]
        filters = {"status": status, "session": session, "parent": parent, "cursor": cursor}
        params = {"limit": limit, "label": label, **{name: value for name, value in filters.items() if value}}
        answer = await self._http.send("GET", "/v1/delegations", params=params)
        return self._http.read(answer, PageOf.model_validate)

    async def events(self, id: str, after: int = 0) -> list[Envelope]:
        answer = await self._http.send(
            "GET", f"/v1/delegations/{id}/events", params={"after": after}, headers={"Accept": "application/json"}
        )
        return self._http.read(answer, lambda body: _each(_envelope, body))

    async def plain_events(self, id: str) -> list[dict[str, Any]]:
        """Returns the stored events as they are sent: for thousands of them, reading them as models takes seconds."""
        answer = await self._http.send("GET", f"/v1/delegations/{id}/events", headers={"Accept": "application/json"})
        return self._http.read(answer, partial(_each, dict))

    async def steps(self, id: str) -> list[ToolAgentStep]:
        answer = await self._http.send("GET", f"/v1/delegations/{id}/steps")
        return self._http.read(answer, partial(_each, ToolAgentStep.model_validate))

    async def patch(self, id: str) -> str:
        return (await self._http.send("GET", f"/v1/delegations/{id}/patch")).text

    async def artifact(self, id: str, name: str, version: int | None = None) -> str:
        params = {"version": version} if version else {}
        return (
            await self._http.send("GET", f"/v1/delegations/{id}/artifacts/{quote(name, safe='')}", params=params)
        ).text

    async def files(self, id: str, *, base: bool = False) -> FileList:
        answer = await self._http.send("GET", f"/v1/delegations/{id}/files", params={"base": base})
        return self._http.read(answer, FileList.model_validate)

    def file(self, id: str, path: str, *, base: bool = False) -> AsyncGenerator[bytes]:
        """Yields the bytes of one file of a delegation's workspace."""
        return self._http.download(f"/v1/delegations/{id}/files/{quote(os.fsencode(path))}", base=base)

    async def cancel(self, id: str) -> Delegation:
        return self._delegation(await self._http.send("POST", f"/v1/delegations/{id}/cancel"))

    async def resume(self, id: str) -> Delegation:
        return self._delegation(await self._http.send("POST", f"/v1/delegations/{id}/resume"))

    async def cancel_all(self, ids: Iterable[str]) -> None:
        """Cancels each; a few at a time, because a service limits its connections."""
        gate = asyncio.Semaphore(MAX_CONCURRENT)

        async def cancel(id: str) -> None:
            async with gate:
                await self.cancel(id)

        await asyncio.gather(*map(cancel, ids))

    async def continue_(
        self, id: str, text: str, limits: Limits | None = None, *, idempotency_key: str | None = None
    ) -> AcceptedDelegation:
        body = {"text": text, "limits": limits.to_dict() if limits else None, "idempotencyKey": idempotency_key}
        answer = await self._http.send("POST", f"/v1/delegations/{id}/continue", content=json.dumps(body))
        return self._accepted(answer)

    async def retry(
        self, id: str, *, from_turn: int | None = None, idempotency_key: str | None = None
    ) -> AcceptedDelegation:
        body = {"fromTurn": from_turn, "idempotencyKey": idempotency_key}
        return self._accepted(await self._http.send("POST", f"/v1/delegations/{id}/retry", content=json.dumps(body)))

    async def permissions(self, delegation: str | None = None) -> list[PermissionRequest]:
        from ..shared.permission import PermissionRequest

        params = {"delegation": delegation} if delegation else {}
        answer = await self._http.send("GET", "/v1/permissions", params=params)
        return self._http.read(answer, lambda body: _each(PermissionRequest.model_validate, body["items"]))

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
        await self._http.send("POST", f"/v1/permissions/{quote(id, safe='')}", content=body)

    async def prune(
        self, older_than: float | None = None, keep_bytes: int | None = None, *, dry_run: bool = False
    ) -> Pruned:
        from ..shared.runs.disk import Pruned

        body = json.dumps({"olderThanSeconds": older_than, "keepBytes": keep_bytes, "dryRun": dry_run})
        answer = await self._http.send("POST", "/v1/delegations:prune", content=body)
        return self._http.read(answer, Pruned.model_validate)

    async def disk(self) -> DiskUsage:
        from ..shared.runs.disk import DiskUsage

        return self._http.read(await self._http.send("GET", "/v1/disk"), DiskUsage.model_validate)

    async def cost(self, by: str = "day", since: datetime | None = None) -> CostReport:
        from ..shared.runs.cost import CostReport

        params = {"by": by} | ({"since": since.isoformat()} if since else {})
        answer = await self._http.send("GET", "/v1/cost", params=params)
        return self._http.read(answer, CostReport.model_validate)

    async def audit(self, limit: int = 50, cursor: str | None = None) -> AuditPage:
        from .audit_log import AuditPage

        params = {"limit": limit} | ({"cursor": cursor} if cursor else {})
        return self._http.read(await self._http.send("GET", "/v1/audit", params=params), AuditPage.model_validate)

    async def not_ready(self) -> str | None:
        try:
            await self._http.send("GET", "/readyz")
        except Unavailable as error:
            return str(error)
        return None

    # Imported late: their module imports the Redis client, which most commands do not need.

    async def workers(self) -> list[WorkerCard]:
        from ..shared.fleet import WorkerCard

        answer = await self._http.send("GET", "/v1/workers")
        return self._http.read(answer, partial(_each, WorkerCard.model_validate))

    async def tools(self) -> list[ToolCard]:
        from ..shared.fleet import ToolCard

        answer = await self._http.send("GET", "/v1/tools")
        return self._http.read(answer, partial(_each, ToolCard.model_validate))

    async def follow(self, id: str, after: int = 0) -> AsyncGenerator[Envelope]:
        """The same; a broken stream is resumed where it broke, with exponential back-off.

        Raises Unavailable after ``patience`` seconds without a connection.
        """
        reconnect = ReconnectPolicy(self._patience)
        while True:
            try:
                async with aclosing(self._http.stream(f"/v1/delegations/{id}/events", after)) as envelopes:
                    async for envelope in envelopes:
                        reconnect.reset()
                        if envelope.seq is not None and envelope.seq <= after:
                            continue
                        after = envelope.seq or after
                        yield envelope
                        if isinstance(envelope.event, RunFinished):
                            return
            except (httpx2.HTTPError, httpx2.SSEError, Unavailable) as error:
                reconnect.check(self._http.unreachable(error))
            await reconnect.wait()

    async def follow_all(self) -> AsyncGenerator[Envelope]:
        """The same. Raises Unavailable when the stream breaks."""
        try:
            async with aclosing(self._http.stream("/v1/events", 0)) as envelopes:
                async for envelope in envelopes:
                    yield envelope
        except (httpx2.HTTPError, httpx2.SSEError) as error:
            raise self._http.unreachable(error) from None

    def _accepted(self, answer: httpx2.Response) -> AcceptedDelegation:
        return AcceptedDelegation(self._delegation(answer), "Idempotent-Replayed" in answer.headers)

    def _delegation(self, answer: httpx2.Response) -> Delegation:
        return self._http.read(answer, Delegation.model_validate)


def _each(convert: Callable[[Any], T], items: object) -> list[T]:
    if not isinstance(items, list):
        raise TypeError("not a list")
    return [convert(item) for item in cast("list[object]", items)]


def _envelope(item: object) -> Envelope:
    return Envelope.from_json(json.dumps(item))
