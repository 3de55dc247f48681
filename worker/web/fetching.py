"""One page over the guarded dial: its status, its head and as much of its body as is allowed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

import httpx2

from worker.web.dial import GuardedTransport
from worker.web.inflating import unpacking
from worker.web.targets import Forbidden, Target

MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_PDF_BYTES = 16 * 1024 * 1024
"""Half a PDF cannot be read, so there may be more of it."""
MAX_CHUNKS = 50_000
MAX_REDIRECTS = 5
_CHARSET = re.compile(r"""\bcharset\s*=\s*["']?([^\s;"']{1,40})""", re.IGNORECASE)
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class Fetched:
    """``body`` is unpacked; ``cut`` says that there was more of it. ``elsewhere`` is a redirect not followed."""

    url: str
    status: int
    content_type: str
    charset: str | None
    body: bytes
    cut: bool = False
    elsewhere: str | None = None

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


async def fetch(transport: GuardedTransport, url: str, headers: Mapping[str, str]) -> Fetched:
    """Gets the page. A redirect is followed at most five times, and only to the same site: what else is there was not
    approved of. Raises ``httpx2.RequestError``; ``Forbidden``, which is one, where something must not be dialled.
    """
    where = transport.judged(url)
    for _ in range(MAX_REDIRECTS + 1):
        answer = await transport.handle_async_request(httpx2.Request("GET", where.url, headers=headers))
        try:
            location = answer.headers.get("location")
            if answer.status_code not in _REDIRECTS or not location:
                return await _read(answer, where)
        finally:
            await answer.aclose()
        there = _followed(transport, where, location)
        if _site(there) != _site(where):
            return Fetched(str(where.url), answer.status_code, "", None, b"", elsewhere=str(there.url))
        where = there
    raise httpx2.TooManyRedirects(f"it redirects more than {MAX_REDIRECTS} times")


def _followed(transport: GuardedTransport, where: Target, location: str) -> Target:
    try:
        return transport.judged(where.url.join(location))
    except Forbidden as error:
        raise Forbidden(f"it redirects to {location[:200]!r}: {error}") from None
    except (httpx2.InvalidURL, ValueError):
        raise Forbidden(f"it redirects to {location[:200]!r}, which is no valid URL") from None


def _site(where: Target) -> str:
    return where.host.removeprefix("www.")


async def _read(answer: httpx2.Response, where: Target) -> Fetched:
    content_type, _, parameters = answer.headers.get("content-type", "").partition(";")
    content_type, charset = content_type.strip().lower()[:100], _CHARSET.search(parameters)
    most = MAX_PDF_BYTES if content_type == "application/pdf" else MAX_BODY_BYTES
    body, cut = await _body(answer, most)
    return Fetched(
        url=str(where.url),
        status=answer.status_code,
        content_type=content_type,
        charset=charset and charset[1],
        body=body,
        cut=cut,
    )


async def _body(answer: httpx2.Response, most: int) -> tuple[bytes, bool]:
    """The unpacked body, or its first ``most`` bytes and True. Raises where it ends too early."""
    packed, body = unpacking(answer.headers), bytearray()
    received = count = 0
    async with aclosing(answer.aiter_raw()) as chunks:
        async for chunk in chunks:
            received, count = received + len(chunk), count + 1
            for piece in packed.pieces(chunk):
                body += piece
                if len(body) > most:
                    return bytes(body[:most]), True
            if received > 2 * most or count > MAX_CHUNKS:  # much is sent that says little
                return bytes(body), True
            if not count % 100:  # many chunks may come in one packet: others have their turn between them
                await asyncio.sleep(0)
    packed.end()
    return bytes(body), False
