"""Who sent a request, and what the audit log will record about it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.types import Scope as AsgiScope

from ..shared.errors import ScopeMissing, Unauthorized
from .scopes import ALL, Scope
from .token_file import Tokens

NOTE = "deputize.note"
"""Key of the request's note in its ASGI scope."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of an authenticated request. ``token`` is the token's name, None where none is asked for."""

    token: str | None
    scopes: frozenset[Scope]

    def check(self, needed: Collection[Scope]) -> None:
        """Raises ScopeMissing, with the names of the scopes, unless the token has all of them."""
        missing = sorted(frozenset(needed) - self.scopes)
        if missing:
            names = " and ".join(missing)
            detail = f"the token {self.token!r} lacks the scope {names}, which this needs; use one that has it"
            raise ScopeMissing(detail, scopes=missing)


ANYONE = Caller(None, ALL)
"""Where the service asks for no token."""


@dataclass(slots=True)
class RequestNote:
    """What is known of a request so far."""

    method: str
    request_id: str
    caller: Caller | None = None
    """None until it is authenticated."""
    token: str | None = None
    """The token's name, also where the token has expired."""
    route: str | None = None
    """The path with its parameters' names; None before a route was found."""
    ids: list[str] = field(default_factory=list[str])
    """The delegations that it concerns."""


def note_of(scope: AsgiScope) -> RequestNote:
    return scope[NOTE]


def name_of_caller(scope: AsgiScope) -> str:
    """Returns what requests of one caller have in common: the token's name, or the address where none is asked for."""
    note: RequestNote | None = scope.get(NOTE)
    return (note and note.token) or str((scope.get("client") or [""])[0])


async def note_here(request: Request) -> RequestNote:
    """The dependency of routes that add delegations to the note, or whose response depends on the caller."""
    return note_of(request.scope)


def caller_of(tokens: Tokens, given: bytes | None, note: RequestNote) -> Caller:
    """Returns the caller with this token, and notes the token's name. Raises Unauthorized without a valid one."""
    if given is None:
        raise Unauthorized("no token; send `Authorization: Bearer …` with the service's DEPUTIZE_TOKEN")
    entry = tokens.find(given)
    if entry is None:
        raise Unauthorized("this is not a token of the service; compare it with DEPUTIZE_TOKEN there")
    note.token = entry.name
    if entry.expired:
        raise Unauthorized(f"the token {entry.name!r} has expired; ask the operator of the service for a new one")
    return Caller(entry.name, entry.scopes)
