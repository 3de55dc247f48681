"""The credentials of git hosts: a file in the format of git's own store, one address with user and token per line.

A line with a path is for that repository, or for all below it, and its token is sent for no other one.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import Misconfigured
from .files import secret_bytes
from .variables import header_text

_ELSEWHERE = re.compile(r"|\.\.?|.*[/\\%;\x00-\x1f\x7f].*", re.DOTALL)
"""Names that lead elsewhere, also by servers that decode twice, or that cut off parameters."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A user and a token for one host, with its port where it is not the usual one."""

    host: str
    user: str
    token: str
    scheme: str = "https"
    path: tuple[str, ...] = ()
    """What the token is limited to: a repository, or what all its repositories have in common. Empty: no limit."""

    def covers(self, repository: Sequence[str]) -> bool:
        """Whether the token is for the repository with these names in its path."""
        return tuple(repository[: len(self.path)]) == self.path

    @property
    def header(self) -> str:
        """The value of HTTP's header ``Authorization``."""
        return f"Basic {self._encoded}"

    @property
    def secrets(self) -> list[str]:
        """All forms in which the token could be shown."""
        return [self.token, self._encoded]

    @property
    def _encoded(self) -> str:
        return b64encode(f"{self.user}:{self.token}".encode()).decode()


def read_credentials(path: Path | None) -> Sequence[Credential]:
    """Returns the file's entries. Raises Misconfigured, which never quotes the file, if other users may read it."""
    if path is None:
        return ()
    lines = enumerate(secret_bytes(path, "git_credentials_file").decode("utf-8", "replace").splitlines(), 1)
    return [_entry(path, number, line.strip()) for number, line in lines if line.strip() and line[0] != "#"]


def _entry(path: Path, number: int, line: str) -> Credential:
    try:
        parts = urlsplit(line)
        if parts.scheme in ("http", "https") and parts.hostname and parts.username and parts.password:
            host = host_of(parts.scheme, parts.hostname, parts.port)
            user, token = map(unquote, _userinfo(parts.netloc))
            return Credential(host, user, header_text(token), parts.scheme, names_of(parts.path))
    except ValueError:
        pass
    raise Misconfigured(f"git_credentials_file: line {number} of {path} is not https://USER:TOKEN@HOST or …@HOST/PATH")


def names_of(path: str) -> tuple[str, ...]:
    """Returns the names in the path of a repository's address. Raises ValueError where it leads elsewhere."""
    names = tuple(map(unquote, path.strip("/").removesuffix(".git").split("/"))) if path.strip("/") else ()
    if any(map(_ELSEWHERE.fullmatch, names)):
        raise ValueError("the path has names that servers may read as other ones")
    return names


def _userinfo(netloc: str) -> tuple[str, str]:
    user, _, token = netloc.rpartition("@")[0].partition(":")
    return user, token


def host_of(scheme: str, name: str, port: int | None) -> str:
    """Returns ``name``, or ``name:port`` where it is not the scheme's usual one, in lower case."""
    name = f"[{name}]" if ":" in name else name.lower()
    return name if port in (None, {"http": 80, "https": 443}[scheme]) else f"{name}:{port}"
