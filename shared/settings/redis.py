"""How Redis is reached besides its address: its user, and TLS."""

from __future__ import annotations

import os
from typing import Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from pydantic import BaseModel, ConfigDict, SecretStr, model_validator

from .values import AbsolutePath

_WEAKENING = {"ssl_cert_reqs", "ssl_check_hostname"}


class RedisSettings(BaseModel):
    """Parts of the connection to Redis that are better not in its address. They override those of ``redis_url``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    user: str | None = None
    """A user of its access control list; ``shared/README.md`` has the least rights that it needs."""
    password: SecretStr | None = None
    ca_file: AbsolutePath | None = None
    """The certificates (PEM) that vouch for the server of a ``rediss://`` address; unset: those of the system."""
    cert_file: AbsolutePath | None = None
    """The certificate (PEM) that this side shows to a server that wants one."""
    key_file: AbsolutePath | None = None
    """Its key, if that is not in the same file."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.key_file and not self.cert_file:
            raise ValueError("key_file needs cert_file, the certificate that it belongs to")
        if self.user and not self.password:
            raise ValueError("user needs password")
        for path in (self.ca_file, self.cert_file, self.key_file):
            if path and not os.access(path, os.R_OK):
                raise ValueError(f"the file {path} cannot be read")
        return self

    @property
    def is_set(self) -> bool:
        return self != RedisSettings()

    def address(self, url: str) -> str:
        """Returns the URL with these parts in it. Raises ValueError if they do not fit its scheme."""
        parts = urlsplit(url)
        if weak := _WEAKENING & dict(parse_qsl(parts.query)).keys():
            raise ValueError(f"{min(weak)}: certificates are always verified; redis.ca_file names those that count")
        files = {"ssl_ca_certs": self.ca_file, "ssl_certfile": self.cert_file, "ssl_keyfile": self.key_file}
        given = {name: str(path) for name, path in files.items() if path}
        if given and parts.scheme != "rediss":
            raise ValueError(f"{parts.scheme}:// is without TLS, so redis.ca_file and cert_file need rediss://")
        if not self.is_set:
            return url
        netloc = self._credentials(parts.netloc)
        query = urlencode({**dict(parse_qsl(parts.query)), **given}) if given else parts.query
        return parts._replace(netloc=netloc, query=query).geturl()

    def _credentials(self, netloc: str) -> str:
        before, _, host = netloc.rpartition("@")
        user, _, password = before.partition(":")
        user = unquote(user) if self.user is None else self.user
        password = unquote(password) if self.password is None else self.password.get_secret_value()
        return f"{quote(user, safe='')}:{quote(password, safe='')}@{host}" if user or password else host
