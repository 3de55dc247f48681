"""The web page: its files and the routes that serve them. It is a client of the API, as every other program."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    type: str
    etag: str

    @classmethod
    def read(cls, path: Path) -> _File:
        content = path.read_bytes()
        return cls(content, TYPES[path.suffix], f'"{sha256(content).hexdigest()[:32]}"')

    def response(self, request: Request) -> Response:
        headers = {**HEADERS, "ETag": self.etag}
        if self.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.type)


def routes() -> list[Route]:
    """Returns the routes of the page, which need no token: it holds nothing but what is in the wheel."""
    files = {path.name: _File.read(path) for path in sorted(FOLDER.iterdir()) if path.suffix in TYPES}
    index = files.pop(INDEX)

    async def get_index(request: Request) -> Response:
        return index.response(request)

    async def get_file(request: Request) -> Response:
        # A name in a dictionary, never a path: nothing else on this machine can be named.
        if (file := files.get(request.path_params["name"])) is None:
            raise HTTPException(404)
        return file.response(request)

    return [Route("/", get_index, methods=["GET"]), Route("/web/{name}", get_file, methods=["GET"])]
