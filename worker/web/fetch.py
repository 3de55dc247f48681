"""Fetches one page over a guarded connection: its status, headers and body up to a limit."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

import httpx2

from .dial import GuardedTransport
from .targets import ForbiddenTarget, Target

CHUNK = 256 * 1024
_GZIP = 31
_ZLIB, _RAW = 15, -15
MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_PDF_BYTES = 16 * 1024 * 1024
"""Larger than for other types, because a truncated PDF cannot be read."""
MAX_CHUNKS = 50_000
MAX_REDIRECTS = 5
_CHARSET = re.compile(r"""\bcharset\s*=\s*["']?([^\s;"']{1,40})""", re.IGNORECASE)
_REDIRECTS = (301, 302, 303, 307, 308)


class IdentityDecoder:
    """Decodes an uncompressed body."""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        yield data

    def end(self) -> None:
        """Called at the end of the body. Raises DecodingError if the compressed data is incomplete."""


class ZlibDecoder(IdentityDecoder):
    """Decodes a gzip or deflate body. Raises ``httpx2.DecodingError`` for invalid data."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._left = b""
        self._inflate = zlib.decompressobj(_GZIP) if encoding == "gzip" else None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        self._left += data
        while len(self._left) > 1:  # two bytes identify the format
            if self._inflate is None:
                self._inflate = zlib.decompressobj(_ZLIB if _is_zlib(self._left) else _RAW)
            elif self._inflate.eof:
                if self._encoding != "gzip" or not self._left.startswith(b"\x1f\x8b"):
                    return  # data that servers append to a compressed body is ignored
                self._inflate = zlib.decompressobj(_GZIP)
            try:
                piece = self._inflate.decompress(self._left, CHUNK)
            except zlib.error as error:
                raise httpx2.DecodingError(f"the server's {self._encoding} body is corrupt: {error}") from None
            self._left = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece
            elif not self._inflate.eof:
                return

    def end(self) -> None:
        begun = self._left or self._inflate is not None
        if begun and not (self._inflate and self._inflate.eof):
            raise httpx2.DecodingError(f"the server's {self._encoding} body ended too early")


def body_decoder(headers: httpx2.Headers) -> IdentityDecoder:
    """Returns the decoder of a response. Raises DecodingError for anything but one layer of gzip or deflate."""
    encoding = headers.get("content-encoding", "").strip().lower().removeprefix("x-")
    if encoding in ("", "identity"):
        return IdentityDecoder()
    if encoding in ("gzip", "deflate"):
        return ZlibDecoder(encoding)
    raise httpx2.DecodingError(f"the server compressed its response as {encoding[:40]!r}, which was not requested")


def _is_zlib(data: bytes) -> bool:
    return data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0


@dataclass(frozen=True, slots=True)
class WebPage:
    """A response. ``body`` is decompressed, and truncated if ``cut``. ``redirect`` is a redirect not followed."""

    url: str
    status: int
    content_type: str
    charset: str | None
    body: bytes
    cut: bool = False
    redirect: str | None = None

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


async def fetch(transport: GuardedTransport, url: str, headers: Mapping[str, str]) -> WebPage:
    """Fetches the page. Follows at most five redirects, and only to the same site: others were not approved.

    Raises ``httpx2.RequestError``, and its subclass ``ForbiddenTarget`` if an address is not allowed.
    """
    where = transport.check_url(url)
    for _ in range(MAX_REDIRECTS + 1):
        answer = await transport.handle_async_request(httpx2.Request("GET", where.url, headers=headers))
        try:
            location = answer.headers.get("location")
            if answer.status_code not in _REDIRECTS or not location:
                return await _read(answer, where)
        finally:
            await answer.aclose()
        next_target = _redirect_target(transport, where, location)
        if _site(next_target) != _site(where):
            return WebPage(str(where.url), answer.status_code, "", None, b"", redirect=str(next_target.url))
        where = next_target
    raise httpx2.TooManyRedirects(f"it redirects more than {MAX_REDIRECTS} times")


def _redirect_target(transport: GuardedTransport, where: Target, location: str) -> Target:
    try:
        return transport.check_url(where.url.join(location))
    except ForbiddenTarget as error:
        raise ForbiddenTarget(f"it redirects to {location[:200]!r}: {error}") from None
    except (httpx2.InvalidURL, ValueError):
        raise ForbiddenTarget(f"it redirects to {location[:200]!r}, which is not a valid URL") from None


def _site(where: Target) -> str:
    return where.host.removeprefix("www.")


async def _read(answer: httpx2.Response, where: Target) -> WebPage:
    content_type, _, parameters = answer.headers.get("content-type", "").partition(";")
    content_type, charset = content_type.strip().lower()[:100], _CHARSET.search(parameters)
    most = MAX_PDF_BYTES if content_type == "application/pdf" else MAX_BODY_BYTES
    body, cut = await _body(answer, most)
    return WebPage(
        url=str(where.url),
        status=answer.status_code,
        content_type=content_type,
        charset=charset and charset[1],
        body=body,
        cut=cut,
    )


async def _body(answer: httpx2.Response, most: int) -> tuple[bytes, bool]:
    """Returns the decompressed body, or its first ``most`` bytes and True. Raises if it ends too early."""
    packed, body = body_decoder(answer.headers), bytearray()
    received = count = 0
    async with aclosing(answer.aiter_raw()) as chunks:
        async for chunk in chunks:
            received, count = received + len(chunk), count + 1
            for piece in packed.pieces(chunk):
                body += piece
                if len(body) > most:
                    return bytes(body[:most]), True
            if received > 2 * most or count > MAX_CHUNKS:  # a body of mostly empty compressed data
                return bytes(body), True
            if not count % 100:  # many chunks may come in one packet: yield to the event loop
                await asyncio.sleep(0)
    packed.end()
    return bytes(body), False
