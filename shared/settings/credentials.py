"""``[credentials.NAME]``: what the proxy of commands adds to their requests to one host; no run sees the token."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, field_validator, model_validator

from ..errors import Misconfigured
from .files import secret_bytes
from .triggers import TableName
from .variables import TABLE, AbsolutePath

_HOST = re.compile(r"(?P<name>[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*|\[[0-9a-f:.]+\])\.?(?::(?P<port>[0-9]{1,5}))?")
_PATH = re.compile(r"(/[A-Za-z0-9_~!$&'()*+,=:@-][A-Za-z0-9._~!$&'()*+,=:@-]*)*/?")
"""Names without escapes, and none that begins with a dot."""
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^`|~-]+")
_OF_MESSAGES = {"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "expect"}
"""Headers that state where a message goes and where it ends."""
_TOKEN = re.compile(r"[!-~]+( [!-~]+)*")
_SCHEME = re.compile(r"[A-Za-z]+ +")
_LEAST_TOKEN = 8
"""Characters: a shorter one could be any word, and is not masked in events."""


class CredentialSettings(BaseModel):
    """A token for one host. Unless it has ``header`` or ``basic``, it is sent as ``Authorization: Bearer TOKEN``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    """``name``, or ``name:port``. The sandbox of a run has to reach it as well (``allowed_hosts``, ``setup_hosts``)."""
    path: str = "/"
    """What it is limited to: this path, and all below it."""
    header: str | None = None
    """The header whose value the file's line is, such as ``PRIVATE-TOKEN``."""
    basic: str | None = None
    """The user whose password the file's line is."""
    token_file: AbsolutePath
    """A file of one line. Only its user may read it."""
    write: bool = False
    """Whether it is also for other methods than GET, HEAD and OPTIONS."""

    @field_validator("host")
    @classmethod
    def _one_host(cls, host: str) -> str:
        found = _HOST.fullmatch(host.lower())
        if found is None or not 0 < int(found["port"] or 443) < 65536:
            raise ValueError(f"{host[:100]!r} is not a host: NAME or NAME:PORT, in ASCII, without scheme and path")
        return f"{found['name']}:{found['port'] or 443}"

    @field_validator("path")
    @classmethod
    def _plain_path(cls, path: str) -> str:
        if not path.startswith("/") or not _PATH.fullmatch(path):
            raise ValueError(f"{path[:100]!r} is not a path such as /simple/, without escapes, query and . or ..")
        return path

    @field_validator("header")
    @classmethod
    def _free_header(cls, header: str | None) -> str | None:
        if header is None or (_HEADER.fullmatch(header) and not _is_of_messages(header.lower())):
            return header
        raise ValueError(f"{header[:100]!r} cannot be the header of a token, such as PRIVATE-TOKEN")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.header and self.basic is not None:
            raise ValueError("header and basic are two forms of one token: set one of them")
        if self.basic is not None and not re.fullmatch(r"[!-9;-~]+", self.basic):
            raise ValueError("basic is the name of a user, in ASCII, without a colon and without its password")
        return self

    @property
    def prefix(self) -> str:
        """The path without a final slash; "" for the whole host."""
        return self.path.rstrip("/")

    def read(self, name: str) -> tuple[str, str, list[str]]:
        """Returns the header's name and value, and the texts that must not be shown; ``name`` is that of the table.

        Raises Misconfigured, which never quotes the file, for one that is missing, wrong, or readable for others.
        """
        place = f"credentials.{name}.token_file"
        token = secret_bytes(self.token_file, place).decode("latin-1").strip()
        if not _TOKEN.fullmatch(token):
            raise Misconfigured(f"{place}: {self.token_file} needs one line of visible ASCII characters, the token")
        if len(bare := _SCHEME.sub("", token)) < _LEAST_TOKEN:
            raise Misconfigured(f"{place}: {self.token_file} needs a token of at least {_LEAST_TOKEN} characters")
        if self.header:
            return self.header, token, [bare]
        if bare != token and self.basic is None:
            raise Misconfigured(
                f'{place}: {self.token_file} has a blank in it; for a scheme and a token set header = "Authorization"'
            )
        if self.basic is not None:
            encoded = b64encode(f"{self.basic}:{token}".encode()).decode()
            return "Authorization", f"Basic {encoded}", [token, encoded]
        return "Authorization", f"Bearer {token}", [token]


def _is_of_messages(header: str) -> bool:
    return header in _OF_MESSAGES or header.startswith("proxy-")


def _distinct(tables: dict[str, CredentialSettings]) -> dict[str, CredentialSettings]:
    by_place: dict[tuple[str, str], str] = {}
    for name, table in tables.items():
        if (other := by_place.setdefault((table.host, table.prefix), name)) != name:
            raise ValueError(f"{other} and {name} are both for {table.host}{table.path}")
    return tables


CredentialTables = Annotated[dict[TableName, CredentialSettings], AfterValidator(_distinct), TABLE]


def token_files(tables: Mapping[str, CredentialSettings]) -> Iterator[Path]:
    """Yields the files of tokens."""
    yield from (table.token_file for table in tables.values())
