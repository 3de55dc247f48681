"""Authentication and origin checks: callers need a token with the route's scope, or run on this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import Headers
from starlette.requests import Request

from ..shared.errors import Forbidden, Refused, Unauthorized
from .access_tokens import Caller, Tokens, caller_of, note_of
from .operations import ROUTES
from .scopes import ALL
from .sockets import is_loopback

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}))(?::([0-9]{1,5}))?")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_REMEDY = "send it from a program, or from a page of the service's own"
_bearer = HTTPBearer(auto_error=False, scheme_name="token", description="A token with the scope of the operation")


def check_origin(method: str, headers: Headers) -> None:
    """Refuses requests that a page of another origin sent. Raises Refused and Forbidden.

    Such a page can send requests from its reader's network, although it cannot read the response. The browser states
    its origin in headers that the page cannot set.
    """
    host, port = _parse_host(headers)
    if method in SAFE_METHODS:
        return
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        raise Forbidden(f"a page of another origin sent this request (Sec-Fetch-Site: {site[:40]}); {_REMEDY}")
    for origin in headers.getlist("origin"):
        if not _is_own(origin, host, port):
            raise Forbidden(f"a page of another origin sent this request (Origin: {origin[:200]}); {_REMEDY}")


def _parse_host(headers: Headers) -> tuple[str, str | None]:
    """Returns name and port of a request's Host header. Raises Refused if it is not a host name."""
    given: Sequence[str] = headers.getlist("host")
    found = _HOST.fullmatch(given[0]) if len(given) == 1 else None
    if found is None:
        raise Refused("the Host header is missing or is not the name of a host; send `Host: NAME` or `Host: NAME:PORT`")
    return found[1], found[2]


def _is_own(origin: str, host: str, port: str | None) -> bool:
    try:
        parts = urlsplit(origin)
        named = parts.port
    except ValueError:
        return False
    default = _DEFAULT_PORTS.get(parts.scheme)
    if default is None or parts.username is not None or parts.path or parts.query or parts.fragment:
        return False
    return (parts.hostname or "") == host.strip("[]").lower() and str(named or default) == (port or default)


async def require_token(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> None:
    """Notes the caller. Raises Unauthorized without a valid token, ScopeMissing if it may not use this route."""
    note = note_of(request.scope)
    # The route of an application that is mounted as a whole is its path.
    route: str = getattr(request.scope.get("route"), "path", request.scope["path"])
    note.route = route
    note.ids += [id] if (id := request.path_params.get("id")) else []
    tokens: Tokens = request.app.state.tokens
    if tokens.asked_for:
        note.caller = caller_of(tokens, given and given.credentials.encode("latin-1"), note)
    elif is_loopback(_parse_host(request.headers)[0].lower()):
        note.caller = Caller(None, ALL)
    else:
        # A page in a browser of this machine can reach loopback through DNS rebinding. Its requests have that host
        # name; those of a program do not.
        raise Unauthorized(
            "without a token the service answers only to requests for localhost; set DEPUTIZE_TOKEN there and here"
        )
    note.caller.check(ROUTES[request.method, route])


async def check_token(request: Request) -> None:
    """The same for an ASGI application that is not a route and so has no dependencies."""
    await require_token(request, await _bearer(request))
