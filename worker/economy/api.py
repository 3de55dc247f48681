"""The Message Batches API of one endpoint: batches are created, listed, looked at and read."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp

from ...shared.errors import ModelUnavailable
from ..models.anthropic import MAX_ERROR_BYTES, AnthropicModel
from ..models.endpoint import MESSAGES
from ..models.retry import Failure, classify_response

BATCHES = f"{MESSAGES}/batches"
ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
"""Ids become part of an address."""
CREATE_SECONDS = 60.0
"""How long the creation of a batch may take; after that it is not known whether it exists."""
READ_SECONDS = 600.0
PAGE = 100
MOST_PAGES = 20
MAX_LINE = 64 * 1024 * 1024
"""Bytes of one result."""
MAX_ANSWER = 4 * 1024 * 1024
NO_SUCH_API = {404, 405, 501}
"""HTTP statuses of an endpoint that has no message batches."""
NOT_CREATED = {501, 529}
"""Those from 500 on after which no batch was created; below 500 none ever was."""


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """A batch as the endpoint describes it."""

    id: str
    has_ended: bool
    created: datetime
    ended: datetime | None
    size: int
    """How many requests it has."""

    @classmethod
    def of(cls, value: Any) -> MessageBatch:
        """Raises Failure for an answer that is none."""
        try:
            created, ended = (_moment(value.get(name)) for name in ("created_at", "ended_at"))
            if not ID.fullmatch(value["id"]) or created is None:
                raise ValueError
            size = sum(int(number) for number in value["request_counts"].values())
            return cls(value["id"], value["processing_status"] == "ended", created, ended, size)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Failure(f"not a message batch: {str(value)[:200]}", retryable=True) from None


def _moment(text: str | None) -> datetime | None:
    moment = datetime.fromisoformat(text) if text else None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


@dataclass(frozen=True, slots=True)
class BatchApi:
    """The Message Batches API with the credentials of a model. Every method raises Failure."""

    model: AnthropicModel

    async def create(self, requests: Mapping[str, str]) -> MessageBatch:
        """Creates a batch of these requests, by the names that their results will have."""
        each = (b'{"custom_id":"%b","params":%b}' % (name.encode(), body.encode()) for name, body in requests.items())
        async with (
            self._timeout(CREATE_SECONDS),
            self._answer(BATCHES, b'{"requests":[' + b",".join(each) + b"]}") as got,
        ):
            return MessageBatch.of(await _json(got))

    async def retrieve(self, id: str) -> MessageBatch:
        async with self._timeout(CREATE_SECONDS), self._answer(f"{BATCHES}/{id}") as got:
            return MessageBatch.of(await _json(got))

    async def since(self, moment: datetime) -> Sequence[MessageBatch]:
        """Returns the batches of the account that were created since then, by all its clients."""
        found, path = list[MessageBatch](), f"{BATCHES}?limit={PAGE}"
        for _ in range(MOST_PAGES):
            async with self._timeout(CREATE_SECONDS), self._answer(path) as got:
                page = await _json(got)
            listed = [MessageBatch.of(each) for each in page.get("data") or []]
            found += [each for each in listed if each.created >= moment]
            if not page.get("has_more") or not listed or listed[-1].created < moment:
                break
            path = f"{BATCHES}?limit={PAGE}&after_id={listed[-1].id}"
        return found

    async def results(self, id: str) -> AsyncGenerator[tuple[str, Mapping[str, Any]]]:
        """Yields the name and the result of each request of a batch that has ended."""
        async with self._timeout(READ_SECONDS), self._answer(f"{BATCHES}/{id}/results") as got:
            async for line in _lines(got):
                try:
                    value = json.loads(line)
                    yield str(value["custom_id"]), dict(value["result"])
                except (KeyError, TypeError, ValueError, RecursionError):
                    raise Failure(f"not a result of a message batch: {line[:200]!r}", retryable=True) from None

    @asynccontextmanager
    async def _timeout(self, seconds: float) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise Failure(f"the message batches of the endpoint take over {seconds:g} s", retryable=True) from None

    @asynccontextmanager
    async def _answer(self, path: str, body: bytes | None = None) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Yields the answer with status 200."""
        try:
            endpoint = self.model.endpoint()
        except ModelUnavailable as error:
            raise Failure(str(error), retryable=False) from None
        async with endpoint.get(path) if body is None else endpoint.post(body, path) as got:
            if got.status != 200:
                text = await got.content.read(MAX_ERROR_BYTES)
                names, url = self.model.names, endpoint.url
                raise classify_response(got.status, got.headers, text, self.model.name, url, names)
            yield got


def may_exist(failure: Failure) -> bool:
    """Returns whether a batch may have been created although the request for it failed."""
    return failure.status == 0 or (failure.status >= 500 and failure.status not in NOT_CREATED)


async def _json(got: aiohttp.ClientResponse) -> Any:
    text = bytearray()
    async for piece in got.content.iter_any():
        text += piece
        if len(text) > MAX_ANSWER:
            raise Failure(f"an answer about message batches is longer than {MAX_ANSWER} bytes", retryable=True)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Failure(f"an answer about message batches is not JSON: {bytes(text[:100])!r}", retryable=True) from None


async def _lines(got: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    """Yields the lines of the body; those that are longer than the client's buffer, too."""
    pieces, size = list[bytes](), 0
    async for piece in got.content.iter_any():
        *ends, rest = piece.split(b"\n")
        for end in ends:
            line, pieces, size = b"".join([*pieces, end]), [], 0
            if line.strip():
                yield line
        pieces.append(rest)
        size += len(rest)
        if size > MAX_LINE:
            raise Failure(f"a result of a message batch is longer than {MAX_LINE} bytes", retryable=True)
    if (line := b"".join(pieces)).strip():
        yield line
