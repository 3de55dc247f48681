"""The operator's credentials for hosts: which requests get one, and what must not be in the answers to them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

import h11

from ...shared.errors import Misconfigured
from ...shared.log import hide, log
from ...shared.settings.credentials import CredentialSettings
from ...shared.text import shortened
from ..sandbox.ports import Report
from .authority import Authority
from .targets import ForbiddenTarget, Target, target

READING = (b"GET", b"HEAD", b"OPTIONS")
_MOST_USES = 500
"""Different uses in one run that are reported; the log of the worker has all."""
_MAX_PATH = 200
_MAX_DECODINGS = 4
_ELSEWHERE = re.compile(r"[ .]*\.[ .]*")
"""Names that lead elsewhere; some servers leave out blanks and dots at the end of one."""
_CONTROLS = re.compile(r"[\x00-\x1f\x7f%]")
_OVERRIDES = re.compile(rb"x-(http-)?method(-override)?|x-(original|rewrite)-ur[il]")
"""Headers by which some servers take another method or path than that of the request."""
_NOT_RETURNED = (b"set-cookie", b"set-cookie2", b"accept-ranges")
"""A session that begins with the credential would do without it what it must not. Parts are not asked for."""
_DROPPED = (b"authorization", b"accept-encoding", b"range", b"if-range")
"""Of a request: the answer has to come whole and uncompressed, so that the token is found in it."""
Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Credential:
    """One table ``credentials.NAME``, with its token."""

    name: str
    prefix: str
    write: bool
    header: tuple[bytes, bytes] = (b"", b"")
    secrets: Sequence[bytes] = ()
    problem: str = ""
    """Why it cannot be used."""

    @classmethod
    def of(cls, name: str, table: CredentialSettings) -> Credential:
        """Reads the token."""
        try:
            header, value, secrets = table.read(name)
        except Misconfigured as error:
            return cls(name, table.prefix, table.write, problem=str(error))
        hide(secrets)  # the file may be newer than this process
        hidden = sorted((each.encode() for each in secrets), key=len, reverse=True)
        return cls(name, table.prefix, table.write, (header.encode(), value.encode()), hidden)

    def added_to(self, headers: Headers) -> Headers:
        """Returns the headers of a request with this one in place of the client's own."""
        own = self.header[0].lower()
        kept = [each for each in headers if _read_as(each[0]) not in (own.replace(b"_", b"-"), *_DROPPED)]
        return [*kept, (b"Accept-Encoding", b"identity"), self.header]

    def answered(self, headers: Headers) -> Headers:
        """Returns the headers of an answer without the token, and without what replaces it."""
        kept = [each for each in headers if each[0].lower() not in _NOT_RETURNED]
        return [(self._masked(name), self._masked(value)) for name, value in kept]

    async def hidden_in(self, body: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
        """Yields the body with stars in place of the token: as many, since its length is announced already.

        The last bytes wait for the next ones, whatever they are. If only those of a token did, a client could find it
        byte by byte.
        """
        held, longest = b"", max(map(len, self.secrets))
        async for chunk in body:
            data = self._masked(held + chunk)
            held = data[max(0, len(data) - longest + 1) :]
            if whole := data[: len(data) - len(held)]:
                yield whole
        if held:
            yield held

    def _masked(self, data: bytes) -> bytes:
        for secret in self.secrets:
            data = data.replace(secret, b"*" * len(secret))
        return data


class HostCredentials:
    """The credentials for one host and port."""

    def __init__(self, where: Target) -> None:
        self.where = where
        self._credentials: list[Credential] = []

    def add(self, credential: Credential) -> None:
        """Adds one; that of the longest path comes first."""
        self._credentials.append(credential)
        self._credentials.sort(key=lambda each: len(each.prefix), reverse=True)

    def of(self, request: h11.Request) -> Credential | None:
        """Returns what belongs to a request; None for a path without one.

        Raises ``RemoteProtocolError`` for a request that servers could read in two ways, ``ForbiddenTarget`` for one
        that is refused.
        """
        self._check_message(request)
        path = request.target.decode("ascii").partition("?")[0]
        found = next((each for each in self._credentials if f"{path}/".startswith(f"{each.prefix}/")), None)
        if found is None:
            return None
        place = f"credentials.{found.name}"
        if found.problem:
            raise ForbiddenTarget(found.problem)
        if request.method not in READING and not found.write:
            method = request.method.decode("ascii")
            raise ForbiddenTarget(f"{place} is for reading, so {method} is refused; `write = true` allows it")
        if any(_OVERRIDES.fullmatch(_read_as(name)) for name, _ in request.headers):
            raise ForbiddenTarget(f"{place} is not for a request whose headers name another method or path")
        if found.prefix and may_lead_elsewhere(path):
            raise ForbiddenTarget(f"{place} is not for a path with . or .., control characters or a doubtful escape")
        return found

    def _check_message(self, request: h11.Request) -> None:
        names = [name for name, _ in request.headers]
        if not request.target.startswith(b"/") or b"#" in request.target:
            raise h11.RemoteProtocolError("inside TLS a request has to name a path")
        if b"content-length" in names and b"transfer-encoding" in names:
            raise h11.RemoteProtocolError("a request has Content-Length or Transfer-Encoding, not both")
        if any(
            value.decode("latin-1").lower() not in self._names for name, value in request.headers if name == b"host"
        ):
            raise h11.RemoteProtocolError("the Host header has to be that of the tunnel")
        if request.method in (b"TRACE", b"TRACK", b"CONNECT"):
            raise ForbiddenTarget(f"{request.method.decode('ascii')} is refused for a host with credentials")
        if b"upgrade" in names:
            raise ForbiddenTarget("websockets and other upgrades are refused for a host with credentials")

    @property
    def _names(self) -> Sequence[str]:
        host, port = self.where.host_port.rsplit(":", 1)
        names = host, f"{host}."
        return [*(f"{name}:{port}" for name in names), *(names if port == "443" else ())]


class Credentials:
    """What one run's commands get, by host. ``report`` is called with a sentence for each different use."""

    def __init__(self, tables: Mapping[str, CredentialSettings], report: Report) -> None:
        self._hosts: dict[tuple[str, int], HostCredentials] = {}
        self._report = report
        self._reported: set[str] = set()
        for name, table in tables.items():
            where = place_of(table)
            self._hosts.setdefault((where.host, where.port), HostCredentials(where)).add(Credential.of(name, table))
        self.authority = Authority()

    def of(self, where: Target) -> HostCredentials | None:
        """Returns those for a target. Raises ForbiddenTarget for one of the same name without TLS."""
        if where.url.scheme == "http" and where.host in (host for host, _ in self._hosts):
            raise ForbiddenTarget(f"{where.host} has credentials, which are sent over TLS only: use https://")
        return self._hosts.get((where.host, where.port))

    def note(self, credential: Credential, host: HostCredentials, request: h11.Request, status: int) -> None:
        """Reports a use: method, host, path and status, and neither query nor header."""
        path = shortened(request.target.decode("ascii").partition("?")[0], _MAX_PATH)
        place = f"{host.where.host_port.removesuffix(':443')}{path}"
        sentence = f"credentials.{credential.name}: {request.method.decode('ascii')} {place} {status}"
        log.info("%s", sentence)
        if sentence in self._reported or len(self._reported) > _MOST_USES:
            return
        self._reported.add(sentence)
        self._report(
            sentence if len(self._reported) <= _MOST_USES else "credentials: the worker's log has further uses"
        )


def reachable(
    tables: Mapping[str, CredentialSettings], check: Callable[[Target], None], report: Report | None
) -> Credentials | None:
    """Returns those for hosts that ``check`` lets commands reach; None without any."""
    found: dict[str, CredentialSettings] = {}
    for name, table in tables.items():
        with suppress(ForbiddenTarget):
            check(place_of(table))
            found[name] = table
    return Credentials(found, report or (lambda _: None)) if found else None


def place_of(table: CredentialSettings) -> Target:
    """Returns where a table's host is. Raises ForbiddenTarget if that is none."""
    return target(f"https://{table.host}/")


def may_lead_elsewhere(path: str) -> bool:
    """Whether a server could read the path as one that is not below its beginning: decoded again, or normalized."""
    return any(_is_doubtful(each) for each in _decoded(path))


def _decoded(path: str) -> Iterator[str | None]:
    """Yields what becomes of a path; None where it cannot be decoded, or not to its end."""
    for _ in range(_MAX_DECODINGS):
        try:
            decoded = unquote(path, errors="strict")
        except UnicodeDecodeError:
            break
        if decoded == path:
            yield path
            return
        path = decoded
    yield None


def _is_doubtful(path: str | None) -> bool:
    if path is None or _CONTROLS.search(path):
        return True
    names = unicodedata.normalize("NFKC", path).replace("\\", "/").split("/")
    return any(_ELSEWHERE.fullmatch(name.partition(";")[0]) for name in names)


def _read_as(name: bytes) -> bytes:
    """Returns a header's name as servers read it that have it in a variable."""
    return name.lower().replace(b"_", b"-")
