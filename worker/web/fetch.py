"""Fetches one page over a guarded connection, and converts it to text for the model.

HTML becomes Markdown, a PDF its text, and other text stays unchanged.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import re
import subprocess
import sys
import zlib
from asyncio import AbstractEventLoop, Semaphore
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import httpx2

from ...shared.errors import ErrorType, ToolError
from ..threads import run_in_thread
from . import converter
from .dial import GuardedTransport
from .targets import ForbiddenTarget, Target

CHUNK = 256 * 1024
_GZIP = 31
MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_PDF_BYTES = 16 * 1024 * 1024
"""Larger than for other types, because a truncated PDF cannot be read."""
MAX_CHUNKS = 50_000
MAX_REDIRECTS = 5
_CHARSET = re.compile(r"""\bcharset\s*=\s*["']?([^\s;"']{1,40})""", re.IGNORECASE)
_REDIRECTS = (301, 302, 303, 307, 308)
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARATION = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]+)|^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]+)""",
    re.IGNORECASE,
)
_DECLARATION_BYTES = 4096
_BROWSER_ENCODINGS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "utf-16": "utf-16-le",
}
"""The encodings that browsers use for these labels."""
_KNOWN = re.compile(
    r"utf-8|utf-16-[lb]e|iso8859-\d+|cp(125\d|866|874|932|949)|koi8-[ru]|mac-(roman|cyrillic)|"
    r"gb18030|big5|big5hkscs|euc_jp|iso2022_jp"
)
"""Encodings of pages. Python's other codecs are not character encodings, or expand a few bytes arbitrarily."""
_GITHUB = re.compile(
    r"https?://(?:www\.)?github\.com/([^/?#]+)/([^/?#]+)/(?:blob|raw)/([^?#]+)(?:[?#].*)?", re.IGNORECASE
)
_GITLAB = re.compile(r"(https?://(?:www\.)?gitlab\.com/[^?#]+?/-)/blob/([^?#]+)(?:[?#].*)?", re.IGNORECASE)
MAX_CONVERSIONS = max(2, os.cpu_count() or 1)
"""Pages that one worker converts concurrently: each takes a process and a core."""
_HTML = ("text/html", "application/xhtml+xml")
_semaphores: WeakKeyDictionary[AbstractEventLoop, Semaphore] = WeakKeyDictionary()


class _GzipDecoder:
    """Decompresses the members of a gzip body. Raises ``httpx2.DecodingError`` for invalid data."""

    def __init__(self) -> None:
        self._left = b""
        self._begun = False
        self._inflate = zlib.decompressobj(_GZIP)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yields decompressed pieces of bounded size."""
        self._left += data
        while len(self._left) > 1:  # two bytes identify a further member
            self._begun = True
            if self._inflate.eof:
                if not self._left.startswith(b"\x1f\x8b"):
                    return  # data that servers append to a compressed body is ignored
                self._inflate = zlib.decompressobj(_GZIP)
            try:
                piece = self._inflate.decompress(self._left, CHUNK)
            except zlib.error as error:
                raise httpx2.DecodingError(f"the server's gzip body is corrupt: {error}") from None
            self._left = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece
            elif not self._inflate.eof:
                return

    def end(self) -> None:
        """Called at the end of the body. Raises DecodingError if the compressed data is incomplete."""
        if (self._left or self._begun) and not self._inflate.eof:
            raise httpx2.DecodingError("the server's gzip body ended too early")


def _decoder(headers: httpx2.Headers) -> _GzipDecoder | None:
    """Returns the decoder of a compressed body. Raises DecodingError for anything but one layer of gzip."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip"):
        return _GzipDecoder()
    raise httpx2.DecodingError(f"the server compressed its response as {encoding[:40]!r}, which was not requested")


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
        if next_target.host.removeprefix("www.") != where.host.removeprefix("www."):
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


async def _read(answer: httpx2.Response, where: Target) -> WebPage:
    content_type, _, parameters = answer.headers.get("content-type", "").partition(";")
    content_type, charset = content_type.strip().lower()[:100], _CHARSET.search(parameters)
    most = MAX_PDF_BYTES if content_type == "application/pdf" else MAX_BODY_BYTES
    body, cut = await _body(answer, most)
    return WebPage(str(where.url), answer.status_code, content_type, charset and charset[1], body, cut)


async def _body(answer: httpx2.Response, most: int) -> tuple[bytes, bool]:
    """Returns the decompressed body, or its first ``most`` bytes and True. Raises if it ends too early."""
    decoder, body = _decoder(answer.headers), bytearray()
    received = count = 0
    async with aclosing(answer.aiter_raw()) as chunks:
        async for chunk in chunks:
            received, count = received + len(chunk), count + 1
            for piece in decoder.pieces(chunk) if decoder else (chunk,):
                body += piece
                if len(body) > most:
                    return bytes(body[:most]), True
            if received > 2 * most or count > MAX_CHUNKS:  # a body of mostly empty compressed data
                return bytes(body), True
            if not count % 100:  # many chunks may come in one packet: yield to the event loop
                await asyncio.sleep(0)
    if decoder:
        decoder.end()
    return bytes(body), False


def decode_body(body: bytes, declared: str | None, *, markup: bool = False, cut: bool = False) -> str:
    """Decodes the body by its byte order mark, the header's charset, the markup's declaration, or UTF-8; if all of
    them fail, by the first of them, with U+FFFD for invalid bytes.

    ``cut``: the last character may be incomplete.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return codecs.getincrementaldecoder(name)("replace").decode(body[len(mark) :], not cut)
    names = list(_charset_candidates(body, declared, markup=markup))
    for name in (*names, "utf-8"):
        try:
            return codecs.getincrementaldecoder(name)().decode(body, not cut)
        except UnicodeDecodeError:
            continue
    return body.decode(names[0] if names else "cp1252", "replace")


def is_utf8(body: bytes, *, cut: bool) -> bool:
    """Whether the bytes are certainly text: valid UTF-8, or marked as UTF-16, and without NUL."""
    try:
        marked = body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return marked or "\0" not in codecs.getincrementaldecoder("utf-8")().decode(body, not cut)
    except UnicodeDecodeError:
        return False


def _charset_candidates(body: bytes, declared: str | None, *, markup: bool) -> Iterator[str]:
    if declared and (name := _codec(declared)):
        yield name
    if markup and (found := _DECLARATION.search(body[:_DECLARATION_BYTES])):
        name = _codec((found[1] or found[2]).decode("ascii", "replace"))
        if name and not name.startswith("utf-16"):  # a declaration in single bytes is not UTF-16
            yield name


def _codec(label: str) -> str | None:
    try:
        name = codecs.lookup(label.strip().strip("\"'")).name
    except (LookupError, ValueError):
        return None
    name = _BROWSER_ENCODINGS.get(name, name)
    return name if _KNOWN.fullmatch(name) else None


def raw_url(url: str) -> str:
    """Returns the URL of the raw file for a file page of a code host; other URLs unchanged."""
    if found := _GITHUB.fullmatch(url.strip()):
        owner, repository, path = found.groups()
        # without a path after the branch it is not the page of a file
        return f"https://raw.githubusercontent.com/{owner}/{repository}/{path}" if "/" in path.strip("/") else url
    if found := _GITLAB.fullmatch(url.strip()):
        return f"{found[1]}/raw/{found[2]}"
    return url


async def page_text(page: WebPage) -> tuple[str, bool]:
    """Returns the page's text, and whether it is truncated. Raises ToolError(NOT_TEXT) for other content."""
    kind = _kind(page)
    if kind == "pdf":
        if page.cut:
            raise ToolError(
                ErrorType.FILE_TOO_LARGE,
                f"{page.url} is a PDF of more than {MAX_PDF_BYTES >> 20} MiB, and a truncated PDF cannot be read. Look "
                "for the same text as a web page.",
            )
        return await _convert(kind, page.url, page.body)
    if kind is None:
        raise _not_text_error(page)
    text = await run_in_thread(decode_body, page.body, page.charset, markup=kind == "html", cut=page.cut)
    if "\0" in text:
        raise _not_text_error(page)
    if kind == "text":
        return text, page.cut
    markdown, cut = await _convert(kind, page.url, text.encode("utf-8", "replace"))
    return markdown, cut or page.cut


def _kind(page: WebPage) -> str | None:
    """Returns ``html``, ``pdf``, ``text`` or None, by the content type, or by the first bytes if that is generic."""
    vague = page.content_type in ("", "application/octet-stream", "binary/octet-stream")
    start = page.body[:512].lstrip().lower()
    if page.content_type in _HTML or (vague and start.startswith((b"<!doctype html", b"<html"))):
        return "html"
    if page.content_type == "application/pdf" or (vague and start.startswith(b"%pdf-")):
        return "pdf"
    if page.content_type.startswith("text/") or is_utf8(page.body, cut=page.cut):
        return "text"
    return "text" if page.charset else None


def _not_text_error(page: WebPage) -> ToolError:
    size = f"more than {MAX_BODY_BYTES >> 20} MiB" if page.cut else f"{len(page.body)} bytes"
    what = page.content_type or "of unknown type"
    return ToolError(
        ErrorType.NOT_TEXT, f"{page.url} is not text: it is {what}, {size}. Look for a page that describes it instead."
    )


async def _convert(kind: str, url: str, data: bytes) -> tuple[str, bool]:
    asked = json.dumps({"kind": kind, "url": url}).encode()
    async with _semaphores.setdefault(asyncio.get_running_loop(), Semaphore(MAX_CONVERSIONS)):
        header, _, text = (await _communicate(asked + b"\n" + data)).partition(b"\n")
    answer: dict[str, Any] = (
        json.loads(header) if header else {"error": f"its {kind} cannot be read; it may be corrupt"}
    )
    if error := answer.get("error"):
        raise ToolError(ErrorType.NOT_TEXT, f"{url}: {error}")
    return text.decode("utf-8", "replace"), bool(answer["cut"])


async def _communicate(data: bytes) -> bytes:
    """Returns the converter's output, empty if it crashed. Cancellation kills it first."""
    process = _start_converter()
    talk = asyncio.ensure_future(asyncio.to_thread(process.communicate, data))
    try:
        answer, _ = await asyncio.shield(talk)
    finally:
        process.kill()
        await asyncio.wait([talk])
    return answer if process.returncode == 0 else b""


def _start_converter() -> subprocess.Popen[bytes]:
    """Starts the converter. Must be called in the loop's thread, with which the process dies. Ignores Ctrl-C."""
    command = [sys.executable, "-I", converter.__file__]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, env={}, cwd="/", process_group=0)
