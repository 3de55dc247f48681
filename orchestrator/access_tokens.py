"""The tokens of a service, that of DEPUTIZE_TOKEN and those of the tokens file, and the callers that send them."""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import stat
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from datetime import time as clock
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ..shared.background import RepeatedCause
from ..shared.errors import Invalid, Misconfigured, ScopeMissing, Unauthorized, Unavailable
from ..shared.settings import Settings, SpendWindows
from ..shared.settings.files import line_numbers, line_of, syntax_error
from ..shared.wire import explain, now
from .scopes import ALL, Scope

if TYPE_CHECKING:
    from starlette.types import Scope as AsgiScope

DEFAULT = "default"
"""The name of the token of DEPUTIZE_TOKEN, which has all scopes."""
MAX_BYTES = 1024 * 1024
NOTE = "deputize.note"
"""Key of the request's note in its ASGI scope."""
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


class TokenEntry(BaseModel):
    """One ``[[token]]`` of the file. It has the token's digest, so that reading the file discloses no token."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=rf"^{NAME}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    scopes: frozenset[Scope] = Field(min_length=1)
    expires: datetime | None = None
    """The token is refused from then on; without an offset it is UTC."""
    owner: str | None = Field(default=None, pattern=rf"^{NAME}$")
    """Whose its delegations are: tokens with the same owner share theirs. None: those of its name."""
    weight: float = Field(default=1, gt=0, le=1000, strict=True)
    """How many turns its owner has at a rate limit for each one of another owner: the highest of its tokens."""
    spend: SpendWindows | None = None
    """Caps on what the delegations of its owner cost together. Of several tokens of an owner the lowest cap holds."""

    @field_validator("name", "owner")
    @classmethod
    def _not_reserved(cls, name: str | None) -> str | None:
        if name == DEFAULT:
            raise ValueError(f"{DEFAULT!r} is the name of the token of DEPUTIZE_TOKEN; choose another one")
        return name

    @field_validator("expires", mode="before")
    @classmethod
    def _moment(cls, value: Any) -> Any:
        if not isinstance(value, date):  # a date-time is one, too
            raise ValueError("is not a date or a date-time of TOML, such as 2027-01-31T12:00:00Z")
        moment = value if isinstance(value, datetime) else datetime.combine(value, clock())
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    @property
    def whose(self) -> str:
        """The owner of its delegations; "" for the main token."""
        return "" if self.name == DEFAULT else self.owner or self.name

    @property
    def expired(self) -> bool:
        return self.expires is not None and self.expires <= now()


class Tokens:
    """All tokens that the service accepts. Raises Misconfigured if the file is wrong when the service starts."""

    def __init__(self, settings: Settings) -> None:
        self._own: list[TokenEntry] = []
        if settings.token is not None:
            digest = digest_of(settings.token.get_secret_value().encode())
            self._own.append(
                TokenEntry.model_construct(name=DEFAULT, sha256=digest, scopes=ALL, expires=None, owner=None)
            )
        self._file = TokenFile(settings.tokens_file) if settings.tokens_file else None
        self._trouble = RepeatedCause("the tokens of the file are refused")
        self.asked_for = settings.asks_for_token
        self._of_file()

    def find(self, given: bytes) -> TokenEntry | None:
        """Returns the token's entry, expired or not. Raises Unavailable where the file cannot be used for now.

        All entries are compared, each in constant time: how long it takes does not depend on the match.
        """
        entries, usable = self._entries()
        digest = digest_of(given)
        found = None
        for entry in entries:
            if hmac.compare_digest(entry.sha256, digest):
                found = entry
        if found is None and not usable:
            raise Unavailable("the service cannot read its tokens for now; its log has the reason")
        return found

    def count(self) -> int:
        """Returns how many are accepted now."""
        return sum(not entry.expired for entry in self._entries()[0])

    def _entries(self) -> tuple[list[TokenEntry], bool]:
        """Returns the entries, and whether those of the file are among them.

        A file that became wrong counts as empty: entries of before may be those that its change was to remove.
        """
        try:
            entries = self._of_file()
        except Misconfigured as error:
            self._trouble.failed(error)
            return self._own, False
        self._trouble.works()
        return [*self._own, *entries], True

    def _of_file(self) -> list[TokenEntry]:
        entries = self._file.entries() if self._file else []
        for entry in entries:
            if any(entry.sha256 == own.sha256 for own in self._own):
                raise Misconfigured(f"the token {entry.name!r} of the tokens file is that of DEPUTIZE_TOKEN, too")
        return entries


class TokenFile:
    """The entries of the file. It is read with every look, and parsed again where its content changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content: bytes | None = None
        self._entries: list[TokenEntry] = []

    def entries(self) -> list[TokenEntry]:
        """Returns the current entries. Raises Misconfigured with the line if the file is wrong."""
        try:
            content = _read_private(self._path)
        except OSError as error:
            raise Misconfigured(f"the tokens file {self._path} cannot be read: {error.strerror}") from None
        if content != self._content:
            self._entries = parse_tokens(content, self._path)
            self._content = content
        return self._entries


def digest_of(token: bytes) -> str:
    return sha256(token).hexdigest()


def _read_private(path: Path) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
            raise Misconfigured(f"the tokens file {path} is not a regular file of at most 1 MiB")
        if found.st_mode & 0o077:
            raise Misconfigured(
                f"the tokens file {path} is open to other users (mode {stat.S_IMODE(found.st_mode):04o}); "
                f"`chmod 600 {path}`"
            )
        return file.read()


def parse_tokens(data: bytes, path: Path) -> list[TokenEntry]:
    """Returns the entries of a file's contents. Raises Misconfigured, whose message quotes nothing of a digest."""

    def wrong(line: int, what: str) -> Misconfigured:
        return Misconfigured(f"the tokens file {path}, line {line}: {what}")

    try:
        tables = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise wrong(data[: error.start].count(b"\n") + 1, "it is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        line, what = syntax_error(error)
        raise wrong(line or len(data.splitlines()), f"it is not TOML ({what})") from None
    lines = line_numbers(data.decode())
    given = tables.pop("token", [])
    if tables or not isinstance(given, list):
        key = next(iter(tables), "token")
        raise wrong(line_of(lines, (key,)), f"{key!r} is unknown; the file holds tables [[token]]")
    entries: list[TokenEntry] = []
    for number, table in enumerate(given):
        try:
            entry = TokenEntry.model_validate(table)
        except ValidationError as error:
            mistake = explain(error, TokenEntry)[0]
            key = mistake["pointer"].split("/")[1] if mistake["pointer"] else ""
            raise wrong(line_of(lines, ("token", number, key)), f"{key}: {mistake['detail']}") from None
        for other in entries:
            if other.name == entry.name or other.sha256 == entry.sha256:
                key = "name" if other.name == entry.name else "sha256"
                raise wrong(line_of(lines, ("token", number, key)), f"{key}: that of the token {other.name!r}, too")
        entries.append(entry)
    return entries


def written_entry(
    name: str,
    digest: str,
    scopes: Sequence[str],
    expires: datetime | None,
    owner: str | None = None,
    spend: Mapping[str, float] | None = None,
) -> str:
    """Returns an entry as text. Raises Invalid if a value is not allowed."""
    try:
        TokenEntry.model_validate(
            {"name": name, "sha256": digest, "scopes": [*scopes], "owner": owner, "spend": spend or None}
        )
    except ValidationError as error:
        mistakes = explain(error, TokenEntry)
        option = {"owner": "--owner", "spend": "--spend"}.get(mistakes[0]["pointer"].split("/")[1], "NAME")
        raise Invalid(f"{option}: {mistakes[0]['detail']}", mistakes) from None
    listed = json.dumps([*dict.fromkeys(scopes)])
    until = f"expires = {expires:%Y-%m-%dT%H:%M:%SZ}\n" if expires else ""
    whose = f'owner = "{owner}"\n' if owner else ""
    caps = ", ".join(f"{window} = {usd:.9g}" for window, usd in (spend or {}).items())
    capped = f"spend = {{{caps}}}\n" if caps else ""
    return f'[[token]]\nname = "{name}"\nsha256 = "{digest}"\nscopes = {listed}\n{whose}{until}{capped}'


def append_entry(path: Path, entry: str) -> None:
    """Appends an entry to the file, which is made if there is none. Raises Misconfigured if that would be wrong."""
    try:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            before = _read_private(path)
            added = (b"\n" if before else b"") + entry.encode()
            added = b"\n" + added if before and not before.endswith(b"\n") else added
            parse_tokens(before + added, path)
            os.write(file.fileno(), added)
    except OSError as error:
        raise Misconfigured(f"the tokens file {path} cannot be written: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of an authenticated request. ``token`` is the token's name, None where none is asked for."""

    token: str | None
    scopes: frozenset[Scope]
    owner: str = ""
    """Whose its delegations, idempotency keys and uploads are: "" for the main token, or where none is asked for."""

    @property
    def is_confined(self) -> bool:
        """Whether there are only the delegations of its owner for it."""
        return Scope.ALL not in self.scopes

    def check(self, needed: Collection[Scope]) -> None:
        """Raises ScopeMissing, with the names of the scopes, unless the token has all of them."""
        missing = sorted(frozenset(needed) - self.scopes)
        if missing:
            names = " and ".join(missing)
            detail = f"the token {self.token!r} lacks the scope {names}, which this needs; use one that has it"
            raise ScopeMissing(detail, scopes=missing)


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
    reason: str | None = None
    """Why a request that was understood had no effect."""


_WHERE = "`deputize token` prints that of a stack on its machine, unless DEPUTIZE_TOKEN is set"


def note_of(scope: AsgiScope) -> RequestNote:
    return scope[NOTE]


def name_of_caller(scope: AsgiScope) -> str:
    """Returns what requests of one caller have in common: the token's name, or the address where none is asked for."""
    note: RequestNote | None = scope.get(NOTE)
    return (note and note.token) or str((scope.get("client") or [""])[0])


def caller_of(tokens: Tokens, given: bytes | None, note: RequestNote) -> Caller:
    """Returns the caller with this token, and notes the token's name. Raises Unauthorized without a valid one."""
    if given is None:
        raise Unauthorized(f"no token; send `Authorization: Bearer …` with the service's DEPUTIZE_TOKEN; {_WHERE}")
    entry = tokens.find(given)
    if entry is None:
        raise Unauthorized(f"this is not a token of the service; compare it with DEPUTIZE_TOKEN there; {_WHERE}")
    note.token = entry.name
    if entry.expired:
        raise Unauthorized(f"the token {entry.name!r} has expired; ask the operator of the service for a new one")
    return Caller(entry.name, entry.scopes, entry.whose)
