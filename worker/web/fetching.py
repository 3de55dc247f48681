"""One page over the guarded dial: its status, its head and as much of its body as is allowed."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

import httpx2

from worker.web.dial import GuardedTransport
from worker.web.targets import Forbidden, Target

PIECE = 256 * 1024
_GZIP = 31
_ZLIB, _RAW = 15, -15
MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_PDF_BYTES = 16 * 1024 * 1024
"""Half a PDF cannot be read, so there may be more of it."""
MAX_CHUNKS = 50_000
MAX_REDIRECTS = 5
_CHARSET = re.compile(r"""\bcharset\s*=\s*["']?([^\s;"']{1,40})""", re.IGNORECASE)
_REDIRECTS = (301, 302, 303, 307, 308)


class Plain:
    """A body that was not packed."""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        yield data

    def end(self) -> None:
        """Called when the body is complete. Raises DecodingError where what was packed is not."""


class Packed(Plain):
    """A gzip or deflate body. Raises ``httpx2.DecodingError`` where it is none."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._left = b""
        self._inflate = zlib.decompressobj(_GZIP) if encoding == "gzip" else None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        self._left += data
        while len(self._left) > 1:  # two bytes say what begins here
            if self._inflate is None:
                self._inflate = zlib.decompressobj(_ZLIB if _is_zlib(self._left) else _RAW)
            elif self._inflate.eof:
                if self._encoding != "gzip" or not self._left.startswith(b"\x1f\x8b"):
                    return  # what servers append to a packed body means nothing
                self._inflate = zlib.decompressobj(_GZIP)
            try:
                piece = self._inflate.decompress(self._left, PIECE)
            except zlib.error as error:
                raise httpx2.DecodingError(f"the server's {self._encoding} body is broken: {error}") from None
            self._left = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece
            elif not self._inflate.eof:
                return

    def end(self) -> None:
        begun = self._left or self._inflate is not None
        if begun and not (self._inflate and self._inflate.eof):
            raise httpx2.DecodingError(f"the server's {self._encoding} body ended too early")


def unpacking(headers: httpx2.Headers) -> Plain:
    """What unpacks a response. Raises DecodingError for anything else than one layer of gzip or deflate."""
    encoding = headers.get("content-encoding", "").strip().lower().removeprefix("x-")
    if encoding in ("", "identity"):
        return Plain()
    if encoding in ("gzip", "deflate"):
        return Packed(encoding)
    raise httpx2.DecodingError(f"the server packed its answer as {encoding[:40]!r}, which was not asked for")


def _is_zlib(data: bytes) -> bool:
    return data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0


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
