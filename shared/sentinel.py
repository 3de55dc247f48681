"""Addresses of a service that Redis Sentinel watches: ``redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DATABASE``.

Each new connection asks the Sentinels for the primary. A primary that became a replica refuses writes; then the
connection is closed, and they are asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from redis.asyncio import Redis
from redis.asyncio.sentinel import MasterNotFoundError, SentinelConnectionPool, SentinelManagedConnection
from redis.exceptions import RedisError

from .connection_pool import Pool

SCHEME = "redis+sentinel"
PORT = 26379
_FORM = "give redis+sentinel://HOST:PORT,HOST:PORT/SERVICE, and /DATABASE behind it"
ASK_SECONDS = 1.0
"""How long one Sentinel is waited for before the next one is asked."""


class _Connection(SentinelManagedConnection):
    """Asks for the primary before it connects again: the library's own goes to the address of before."""

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if not self.is_connected:
            await self.connect()
        await super().send_packed_command(command, check_health)


class _Pool(Pool, SentinelConnectionPool):
    """The pool of connections to whichever server is the primary."""


def is_of_sentinel(url: str) -> bool:
    return "sentinel" in url.partition(":")[0]


@dataclass(frozen=True, slots=True)
class SentinelAddress:
    """A service, and who knows its primary. User and password are those of the servers, not of the Sentinels."""

    hosts: Sequence[tuple[str, int]]
    service: str
    database: int = 0
    user: str | None = None
    password: str | None = None

    @classmethod
    def of(cls, url: str) -> SentinelAddress:
        """Raises ValueError for an address that is none."""
        parts = urlsplit(url)
        if parts.scheme != SCHEME:
            raise ValueError(f"{parts.scheme}:// is not supported, nor is Sentinel with TLS; {_FORM}")
        before, _, hosts = parts.netloc.rpartition("@")
        user, _, password = (unquote(each) for each in before.partition(":"))
        service, _, database = parts.path.strip("/").partition("/")
        if not service or parts.query or not (database or "0").isdecimal():
            raise ValueError(f"this is not the address of a service; {_FORM}")
        found = [_host(each) for each in hosts.split(",")]
        return cls(found, unquote(service), int(database or 0), user or None, password or None)

    @property
    def options(self) -> dict[str, Any]:
        """What a connection to the primary needs besides its address."""
        return {"db": self.database, "username": self.user, "password": self.password}

    def client(self, **options: Any) -> Redis:
        pool = _Pool(self.service, self, connection_class=_Connection, **self.options, **options)
        return Redis.from_pool(pool)

    def broker(self) -> tuple[str, dict[str, Any]]:
        """Returns Celery's form of the address, and the options of its transport."""
        secret = f":{quote(self.password, safe='')}@" if self.password else ""
        named = f"{quote(self.user, safe='')}{secret}" if self.user else secret
        urls = [f"sentinel://{named}{host}:{port}/{self.database}" for host, port in self.hosts]
        return ";".join(urls), {"master_name": self.service, "sentinel_kwargs": {"socket_timeout": ASK_SECONDS}}

    async def discover_master(self, service: str) -> tuple[str, int]:
        """Returns the address of the primary, as the first Sentinel that replies knows it. The pool calls this."""
        for host, port in self.hosts:
            options: dict[str, Any] = {
                "socket_timeout": ASK_SECONDS,
                "socket_connect_timeout": ASK_SECONDS,
                "decode_responses": True,
            }
            with suppress(RedisError, OSError):
                async with Redis(host=host, port=port, **options) as sentinel:
                    asked: Any = sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
                    if found := await asked:
                        return found[0], int(found[1])
        raise MasterNotFoundError(f"no Sentinel knows a primary of {service!r}")


def _host(text: str) -> tuple[str, int]:
    name, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        name, port = text, str(PORT)
    if not name or not port.isdecimal() or not 0 < int(port) <= 65535:
        raise ValueError(f"{text!r} is not a host; {_FORM}")
    return name.strip("[]"), int(port)
