"""The service's verbs over HTTP: the same names, the same errors, and streams that mend themselves."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlsplit

import httpx2
from pydantic import ValidationError

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

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0
SILENCE_SECONDS = 45.0
"""Three keepalives that did not come: the connection is dead, whatever the socket says."""
PATIENCE_SECONDS = 60.0
"""How long a broken stream is mended before the caller hears of it."""
FULL_SECONDS = 5.0
"""A full disk is seldom emptied while somebody waits."""
MAX_WAIT_SECONDS = 60.0
MENDING = "start one with `deputize up` or set DEPUTIZE_URL"

KINDS: dict[int, type[Refused]] = {
    401: Unauthorized,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: Invalid,
}


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Delegation]
    next_cursor: str | None


class Client:
    """One service. Raises the ``Refused`` tree as the service does, and Unavailable where nobody answers."""

    def __init__(self, url: str, token: str | None = None, *, patience: float = PATIENCE_SECONDS) -> None:
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise Misconfigured(f"{url!r} is no address of a service; DEPUTIZE_URL looks like http://127.0.0.1:8642")
        self.url = url.rstrip("/")
        self._patience = patience
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            headers={b"Authorization": f"Bearer {token}".encode()} if token else None,
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None),
            # A proxy of this machine's environment cannot know this machine's own loopback.
            trust_env=address.hostname not in ("127.0.0.1", "localhost", "::1"),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def create(self, request: DelegationRequest) -> Delegation:
        return _delegation(await self._send("POST", "/v1/delegations", content=request.to_json()))

    async def batch(self, requests: Sequence[DelegationRequest]) -> list[Delegation]:
        """In the order of the requests; all are accepted or none."""
        body = ",".join(request.to_json() for request in requests)
        answer = await self._send("POST", "/v1/delegations:batch", content=f'{{"requests":[{body}]}}')
        return [Delegation.model_validate(item) for item in answer.json()["items"]]

    async def get(self, id: str, wait: float = 0) -> Delegation:
        """The delegation; with ``wait`` when it is finished or that many seconds are over, at most 60."""
        wait = min(wait, MAX_WAIT_SECONDS)
        timeout = httpx2.Timeout(ANSWER_SECONDS + wait, connect=CONNECT_SECONDS)
        params = {"wait": wait} if wait > 0 else {}
        return _delegation(await self._send("GET", f"/v1/delegations/{id}", params=params, timeout=timeout))

    async def list(
        self,
        *,
        status: Status | None = None,
        session: str | None = None,
        labels: Sequence[str] = (),
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Newest first; ``labels`` are ``key:value``."""
        given = {"status": status, "session": session, "cursor": cursor}
        params = {"limit": limit, "label": [*labels], **{name: value for name, value in given.items() if value}}
        page = (await self._send("GET", "/v1/delegations", params=params)).json()
        return Page([Delegation.model_validate(item) for item in page["items"]], page["nextCursor"])

    async def events(self, id: str, after: int = 0) -> list[Envelope]:
        """Those that are kept."""
        answer = await self._send(
            "GET", f"/v1/delegations/{id}/events", params={"after": after}, headers={"Accept": "application/json"}
        )
        return [Envelope.from_json(json.dumps(item)) for item in answer.json()]

    async def steps(self, id: str) -> list[ToolAgentStep]:
        answer = await self._send("GET", f"/v1/delegations/{id}/steps")
        return [ToolAgentStep.model_validate(item) for item in answer.json()]

    async def patch(self, id: str) -> str:
        return (await self._send("GET", f"/v1/delegations/{id}/patch")).text

    async def artifact(self, id: str, name: str, version: int | None = None) -> str:
        params = {"version": version} if version else {}
        return (await self._send("GET", f"/v1/delegations/{id}/artifacts/{quote(name, safe='')}", params=params)).text

    async def cancel(self, id: str) -> Delegation:
        return _delegation(await self._send("POST", f"/v1/delegations/{id}/cancel"))

    async def prune(self, older_than: float | None = None) -> int:
        """The number of delegations whose records were removed; without a time the service's own setting counts."""
        body = json.dumps({"olderThanSeconds": older_than})
        return (await self._send("POST", "/v1/delegations:prune", content=body)).json()["removed"]

    async def not_ready(self) -> str | None:
        """Why what is handed over now would only wait: nobody works, or Redis is away. None when all is well."""
        try:
            await self._send("GET", "/readyz")
        except Unavailable as error:
            return str(error)
        return None

    # Their module brings the Redis client along, which most commands never need.

    async def workers(self) -> list[WorkerCard]:
        from shared.catalog import WorkerCard

        return [WorkerCard.model_validate(item) for item in (await self._send("GET", "/v1/workers")).json()]

    async def tools(self) -> list[ToolCard]:
        from shared.catalog import ToolCard

        return [ToolCard.model_validate(item) for item in (await self._send("GET", "/v1/tools")).json()]

    async def follow(self, id: str, after: int = 0) -> AsyncGenerator[Envelope]:
        """Every event after ``after``, then the live ones; ends after ``run_finished``.

        A broken connection is resumed where it broke, with growing pauses; only after ``patience`` seconds without
        one does Unavailable come out.
        """
        pauses = _Pauses(self._patience)
        while True:
            try:
                async with aclosing(self._stream(f"/v1/delegations/{id}/events", after)) as envelopes:
                    async for envelope in envelopes:
                        pauses.over()
                        if envelope.seq is not None and envelope.seq <= after:
                            continue
                        after = envelope.seq or after
                        yield envelope
                        if isinstance(envelope.event, RunFinished):
                            return
            except (httpx2.TransportError, Unavailable) as error:
                pauses.check(self._unreachable(error))
            await pauses.next()

    async def follow_all(self) -> AsyncGenerator[Envelope]:
        """What happens from now on, in all delegations. Raises Unavailable when the stream breaks."""
        try:
            async with aclosing(self._stream("/v1/events", 0)) as envelopes:
                async for envelope in envelopes:
                    yield envelope
        except httpx2.TransportError as error:
            raise self._unreachable(error) from None

    async def _stream(self, path: str, after: int) -> AsyncGenerator[Envelope]:
        timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        async with self._http.sse(path, headers={"Last-Event-ID": str(after)}, timeout=timeout) as source:
            await self._check(source.response)
            async for frame in source:
                try:
                    yield Envelope.from_json(frame.data)
                except ValidationError:
                    continue  # a newer service knows events that this version does not

    async def _send(self, method: str, path: str, **request: Any) -> httpx2.Response:
        if "content" in request:
            request["headers"] = {"Content-Type": "application/json"}
        try:
            answer = await self._http.request(method, path, **request)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from None
        await self._check(answer)
        return answer

    async def _check(self, answer: httpx2.Response) -> None:
        if answer.is_success:
            return
        await answer.aread()
        try:
            problem = answer.json()
            detail, errors, kind = str(problem["detail"]), list(problem["errors"]), str(problem["type"])
        except (ValueError, KeyError, TypeError):
            raise Unavailable(
                f"{self.url} answered {answer.status_code} and is no service of ours; {MENDING}"
            ) from None
        if answer.status_code >= 500:
            raise (OutOfSpace if answer.status_code == 507 else Unavailable)(detail)
        known = KeyReused if kind.endswith(":key-reused") else KINDS.get(answer.status_code, Refused)
        raise known(detail, errors)

    def _unreachable(self, error: Exception) -> Unavailable:
        if isinstance(error, Unavailable):
            return error
        return Unavailable(f"nobody answers at {self.url} ({error or type(error).__name__}); {MENDING}")


class _Pauses:
    """How long to wait before the next try, and when to stop trying."""

    FIRST, LONGEST = 0.1, 5.0

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self.over()

    def over(self) -> None:
        """Something came: the next trouble is a new one."""
        self._delay = self.FIRST
        self._since: float | None = None

    def check(self, error: Unavailable) -> None:
        self._since = self._since or time.monotonic()
        patience = min(self._patience, FULL_SECONDS) if isinstance(error, OutOfSpace) else self._patience
        if time.monotonic() + self._delay - self._since > patience:
            raise error from None

    async def next(self) -> None:
        await asyncio.sleep(self._delay)
        self._delay = min(2 * self._delay, self.LONGEST)


def _delegation(answer: httpx2.Response) -> Delegation:
    return Delegation.model_validate_json(answer.content)
