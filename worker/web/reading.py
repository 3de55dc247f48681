"""What a fetched page says, as text for the model: HTML as Markdown, PDFs as their text, all other text as it is."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from asyncio import AbstractEventLoop, Semaphore
from typing import Any
from weakref import WeakKeyDictionary

from shared.errors import ErrorType, ToolError
from worker.threads import to_the_end
from worker.web import reader
from worker.web.charsets import decoded, is_utf8
from worker.web.fetching import MAX_BODY_BYTES, MAX_PDF_BYTES, Fetched

AT_ONCE = max(2, os.cpu_count() or 1)
"""Pages that one worker process has read at the same time: each takes a process, and a core."""
_HTML = ("text/html", "application/xhtml+xml")
_turns: WeakKeyDictionary[AbstractEventLoop, Semaphore] = WeakKeyDictionary()


async def readable(page: Fetched) -> tuple[str, bool]:
    """The page's text, and whether it is only the beginning. Raises ToolError(NOT_TEXT) where it has none."""
    kind = _kind(page)
    if kind == "pdf":
        if page.cut:
            raise ToolError(
                ErrorType.FILE_TOO_LARGE,
                f"{page.url} is a PDF of more than {MAX_PDF_BYTES >> 20} MiB, and half of one cannot be read. Look "
                "for the same text as a web page.",
            )
        return await _read(kind, page.url, page.body)
    if kind is None:
        raise _no_text(page)
    text = await to_the_end(decoded, page.body, page.charset, markup=kind == "html", cut=page.cut)
    if "\0" in text:
        raise _no_text(page)
    if kind == "text":
        return text, page.cut
    markdown, cut = await _read(kind, page.url, text.encode("utf-8", "replace"))
    return markdown, cut or page.cut


def _kind(page: Fetched) -> str | None:
    """``html``, ``pdf``, ``text``, or None: by what the server says, and where that says little by the first bytes."""
    vague = page.content_type in ("", "application/octet-stream", "binary/octet-stream")
    start = page.body[:512].lstrip().lower()
    if page.content_type in _HTML or (vague and start.startswith((b"<!doctype html", b"<html"))):
        return "html"
    if page.content_type == "application/pdf" or (vague and start.startswith(b"%pdf-")):
        return "pdf"
    if page.content_type.startswith("text/") or is_utf8(page.body, cut=page.cut):
        return "text"
    return "text" if page.charset else None


def _no_text(page: Fetched) -> ToolError:
    size = f"more than {MAX_BODY_BYTES >> 20} MiB" if page.cut else f"{len(page.body)} bytes"
    what = page.content_type or "of no known type"
    return ToolError(
        ErrorType.NOT_TEXT, f"{page.url} is no text: it is {what}, {size}. Look for a page that describes it instead."
    )


async def _read(kind: str, url: str, data: bytes) -> tuple[str, bool]:
    asked = json.dumps({"kind": kind, "url": url}).encode()
    async with _turns.setdefault(asyncio.get_running_loop(), Semaphore(AT_ONCE)):
        said, _, text = (await _in_a_process(asked + b"\n" + data)).partition(b"\n")
    answer: dict[str, Any] = json.loads(said) if said else {"error": f"its {kind} leads nowhere; it may be broken"}
    if error := answer.get("error"):
        raise ToolError(ErrorType.NOT_TEXT, f"{url}: {error}")
    return text.decode("utf-8", "replace"), bool(answer["cut"])


async def _in_a_process(data: bytes) -> bytes:
    """What the reader answers; nothing where it died of the page. Cancelled, it is killed before we go on."""
    process = _reader()
    talk = asyncio.ensure_future(asyncio.to_thread(process.communicate, data))
    try:
        answer, _ = await asyncio.shield(talk)
    finally:
        process.kill()
        await asyncio.wait([talk])
    return answer if process.returncode == 0 else b""


def _reader() -> subprocess.Popen[bytes]:
    """Start it from the loop's thread: the kernel kills it when that thread ends. A terminal's Ctrl-C is not for it."""
    command = [sys.executable, "-I", reader.__file__]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, env={}, cwd="/", process_group=0)
