"""Bodies as they were before the server packed them, in pieces of a bounded size: a bomb is never wholly unpacked."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import httpx2

PIECE = 256 * 1024
_GZIP = 31
_ZLIB, _RAW = 15, -15


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
