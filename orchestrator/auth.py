"""Who may call: holders of the token; where the operator wants none, this machine's own programs."""

from __future__ import annotations

import hmac
from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import Request

from orchestrator.binding import is_loopback
from orchestrator.guard import host_of
from shared.errors import Unauthorized
from shared.settings import Settings

_bearer = HTTPBearer(auto_error=False, scheme_name="token", description="DEPUTIZE_TOKEN of the service")


async def authorized(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> None:
    """Raises Unauthorized unless the request carries the token."""
    settings: Settings = request.app.state.settings
    if settings.token is None:
        _same_machine(request)
        return
    wanted = settings.token.get_secret_value().encode()
    if given is None:
        raise Unauthorized("no token; send `Authorization: Bearer …` with the service's DEPUTIZE_TOKEN")
    if not hmac.compare_digest(given.credentials.encode("latin-1"), wanted):
        raise Unauthorized("this is not the service's token; compare it with DEPUTIZE_TOKEN there")


def _same_machine(request: Request) -> None:
    # A page in a browser of this machine reaches loopback too, through a name of its own that points here.
    # Its requests carry that name; a program's do not.
    if not is_loopback(host_of(request.headers)):
        raise Unauthorized(
            "without a token the service answers only to requests for localhost; set DEPUTIZE_TOKEN there and here"
        )
