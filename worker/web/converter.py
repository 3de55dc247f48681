"""Program that converts one page to text. It is a process of its own because the libraries hold the interpreter lock
for seconds, and a hostile page can make them run for ever. It imports nothing of this project.

Input: a line of JSON (``kind``: html or pdf, ``url``), then the bytes. Output: a line of JSON (``cut``, or ``error``),
then the text in UTF-8; nothing if a library fails on the page in a way that it does not document.
"""

from __future__ import annotations

import ctypes
import io
import json
import resource
import signal
import sys

MAX_CHARS = 4 * 1024 * 1024
_MEMORY = 1024 * 1024 * 1024
_SECONDS = 20
_PR_SET_PDEATHSIG = 1
_EXCLUDED = [
    *("nav", "aside", "footer", "form", "button", "dialog", "[role=dialog]", "[role=navigation]"),
    *("[aria-hidden=true]", "svg", "script", "style", "noscript"),
]
"""Elements around a page's text, or invisible ones."""


class _UnreadablePage(Exception):
    """The page cannot be read; the message is the reason."""


def html(text: str, url: str) -> str:
    """Returns the page as Markdown, with absolute links, code blocks and tables, without hidden text."""
    from html_to_markdown import ConversionError, ConversionOptions, convert

    options = ConversionOptions(
        base_url=url,
        extract_metadata=False,
        hidden_content="drop",
        inline_data_media="drop_element",
        autolinks=False,
        compact_tables=True,
        exclude_selectors=_EXCLUDED,
    )
    try:
        return convert(text, options).content or ""
    except ConversionError as error:
        raise _UnreadablePage(f"the page cannot be read as html: {error!r}") from None


def pdf(data: bytes) -> str:
    """Returns the text of each page, preceded by its number."""
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError:
        raise _UnreadablePage(
            "text of PDFs can only be read where the package pypdf is installed: the operator can add it with the "
            "extra 'pdf' of deputize"
        ) from None

    parts: list[str] = []
    length = 0
    try:
        for number, page in enumerate(PdfReader(io.BytesIO(data)).pages, 1):
            parts.append(f"[page {number}]\n{page.extract_text().strip()}")
            length += len(parts[-1])
            if length > MAX_CHARS:
                break
    except PyPdfError as error:
        raise _UnreadablePage(f"the page cannot be read as pdf: {error!r}") from None
    return "\n\n".join(parts)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    request = json.loads(sys.stdin.buffer.readline())
    data = sys.stdin.buffer.read()
    try:
        text = pdf(data) if request["kind"] == "pdf" else html(data.decode("utf-8", "replace"), request["url"])
    except _UnreadablePage as error:
        answer, text = {"error": str(error)}, ""
    else:
        answer = {"cut": len(text) > MAX_CHARS}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + text[:MAX_CHARS].strip().encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
