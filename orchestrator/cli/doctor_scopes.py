"""The row of `deputize doctor` about tokens and scopes, judged by the functions that the service uses."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from ...shared.errors import Misconfigured, ScopeMissing, Unauthorized
from ...shared.wire import now
from .findings import Finding

if TYPE_CHECKING:
    from ...shared.settings import Settings
    from ..caller import Caller
    from ..token_file import Tokens


def scopes_row(settings: Settings) -> Finding:
    """Tries a new token of each scope with all routes, and each token of the file."""
    from ..caller import Caller
    from ..token_file import TokenFile

    try:
        with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
            problems = [*_of_new_tokens(settings, Path(folder) / "tokens.toml")]
        entries = TokenFile(settings.tokens_file).entries() if settings.tokens_file else []
    except (Misconfigured, OSError) as error:
        return Finding("!", "scopes", f"not tried: {error}", "correct what it names")
    problems += [problem for entry in entries for problem in wrong_routes(Caller(entry.name, entry.scopes))]
    if problems:
        return Finding("✗", "scopes", "; ".join(problems), "run no service before this is mended, and report it")
    of_file = f"; so are the {len(entries)} of the file" if entries else ""
    return Finding("✓", "scopes", f"new tokens are refused what they are not for: one to read cannot submit{of_file}")


def _of_new_tokens(settings: Settings, path: Path) -> Iterator[str]:
    from ..caller import RequestNote, caller_of
    from ..scopes import Scope
    from ..token_file import Tokens, append_entry, digest_of, written_entry

    valid = {f"doctor-{scope}": (scope, None) for scope in Scope}
    kinds = valid | {"doctor-expired": (Scope.READ, now() - timedelta(days=1))}
    given = {name: token_urlsafe(24).encode() for name in kinds}
    for name, (scope, expires) in kinds.items():
        append_entry(path, written_entry(name, digest_of(given[name]), [scope], expires))
    tokens = Tokens(settings.model_copy(update={"tokens_file": path}))
    for name in valid:
        yield from wrong_routes(caller_of(tokens, given[name], RequestNote("GET", "doctor")))
    for what, token in {"an expired token": given["doctor-expired"], "an unknown token": b"unknown"}.items():
        if is_accepted(tokens, token):
            yield f"{what} is accepted"


def is_accepted(tokens: Tokens, token: bytes) -> bool:
    """Whether the service would know a caller by this token."""
    from ..caller import RequestNote, caller_of

    try:
        caller_of(tokens, token, RequestNote("GET", "doctor"))
    except Unauthorized:
        return False
    return True


def wrong_routes(caller: Caller) -> Iterator[str]:
    """Yields the routes that the caller may use without their scopes, or may not use in spite of them."""
    from ..scopes import ROUTES

    for (method, route), needed in ROUTES.items():
        try:
            caller.check(needed)
        except ScopeMissing:
            if needed <= caller.scopes:
                yield f"the token {caller.token!r} may not {method} {route}, in spite of its scopes"
            continue
        if not needed <= caller.scopes:
            yield f"the token {caller.token!r} may {method} {route} without that scope"
