"""The web page: its files and the routes that serve them. It is a client of the API, as every other program."""

from __future__ import annotations

import gzip
import re
from functools import cache
from hashlib import sha256
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).parent
INDEX = "index.html"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}

HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "img-src 'self' data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            # Browsers that know these refuse every assignment of text as markup.
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Beside those of every response. What a model writes is on the page as text, and could not do anything as markup."""


@cache
def _files() -> dict[str, tuple[bytes, bytes, str]]:
    """Returns the content of each file, its compressed content and its ETag. A process reads and compresses once."""
    paths = [path for path in FOLDER.rglob("*") if path.suffix in TYPES]
    contents = {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in paths}
    return {
        name: (content, gzip.compress(content, mtime=0), f'W/"{sha256(content).hexdigest()[:32]}"')
        for name, content in contents.items()
    }


def routes() -> list[Route]:
    """Returns the routes of the page, which need no token: it holds nothing but what is in the wheel."""
    files = _files()

    async def get_file(request: Request) -> Response:
        # A name in a dictionary, never a path: nothing else on this machine can be named.
        name = request.path_params.get("name", INDEX)
        if name not in files or (name == INDEX and request.url.path != "/"):
            raise HTTPException(404)
        content, compressed, etag = files[name]
        headers = {**HEADERS, "ETag": etag, "Vary": "Accept-Encoding"}
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        packs = re.search(r"\bgzip\b(?!\s*;\s*q=0)", request.headers.get("accept-encoding", ""))
        headers |= {"Content-Encoding": "gzip"} if packs else {}
        return Response(compressed if packs else content, headers=headers, media_type=TYPES[Path(name).suffix])

    return [Route(path, get_file, methods=["GET"]) for path in ("/", "/web/{name:path}")]
