"""Guarded connections: a name is resolved once, every address is checked, and a checked address is connected to.

This prevents DNS rebinding: a later resolution of the name has no effect. One private address in the answer refuses
all of them. TLS and the Host header use the name, as usual.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from ssl import SSLContext
from threading import Lock
from typing import cast

import httpcore2
import httpx2

from ..threads import run_in_thread
from .targets import Address, ForbiddenTarget, PrivateHosts, Target, refusal_reason, target

IDLE_SECONDS = 30.0
_KEEPALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
MAX_TRIES = 4
"""Addresses of one host that are tried."""
TRY_SECONDS = 5.0
"""How long one address is tried while others are left."""
_READING = Lock()
_TcpBackend = cast("type[httpcore2.AsyncNetworkBackend]", httpcore2.AnyIOBackend)


@lru_cache(maxsize=1)
def trust_store() -> SSLContext:
    """Returns the machine's certificate authorities, or SSL_CERT_FILE's. Cached: reading them takes 40 ms."""
    return httpx2.create_ssl_context()


async def read_trust_store() -> None:
    """Reads the certificate authorities in a thread, unless they were read: transports then have them at once."""
    if not trust_store.cache_info().currsize:
        await run_in_thread(_read_once)


def _read_once() -> None:
    with _READING:  # of many first requests one reads
        trust_store()


class Network(_TcpBackend):
    """This machine's network: names by its resolver, connections by TCP."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Returns all addresses of a name. Raises OSError if it cannot be resolved."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """A transport for httpx2 clients, without a proxy, that connects only to public addresses and ``private_hosts``.

    Each request of a client is checked, including redirects. Responses stream; the caller limits their size. Refused
    requests raise ``ForbiddenTarget``, an ``httpx2.ConnectError``. With ``loopback`` False even the names in
    ``private_hosts`` must not resolve to this machine's loopback addresses. ``tls`` has the trusted certificate
    authorities, by default the machine's. With ``keepalive`` False each request has a connection of its own.
    """

    def __init__(
        self,
        private_hosts: Sequence[str] = (),
        *,
        loopback: bool | None = None,
        network: Network | None = None,
        tls: SSLContext | None = None,
        keepalive: bool = True,
    ) -> None:
        self._private = PrivateHosts(private_hosts)
        self._guard = _Guard(self._private, network or Network(), loopback)
        tls = tls or trust_store()
        super().__init__(verify=tls)
        # The library has no parameter for the network.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=None,
            max_keepalive_connections=None if keepalive else 0,
            keepalive_expiry=IDLE_SECONDS,
            socket_options=_KEEPALIVE,
            network_backend=self._guard,
        )

    def check_url(self, url: str | httpx2.URL) -> Target:
        """Parses the URL. Raises ``ForbiddenTarget`` if its text alone shows that it is not allowed."""
        where = target(url)
        if not (where.standard_port or self._private.has_port(where.host, where.port)):
            raise ForbiddenTarget(
                f"port {where.port} must not be used for {where.url.scheme}; web pages use 80 and 443"
            )
        if where.address:
            _check_address(where.host, where.address, private=self._private.has(where.host, where.port))
        return where

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.check_url(request.url)
        return await super().handle_async_request(request)

    async def connect(self, where: Target, timeout: float) -> httpcore2.AsyncNetworkStream:
        """Opens a connection without TLS. Raises ``httpx2.ConnectError``; the connection raises httpcore2's errors."""
        self.check_url(where.url)
        try:
            return await self._guard.connect_tcp(where.host, where.port, timeout, None, _KEEPALIVE)
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            raise httpx2.ConnectError(str(error)) from error


class _Guard(httpcore2.AsyncNetworkBackend):
    """Makes the connections of a transport, to checked addresses only."""

    def __init__(self, private: PrivateHosts, network: Network, loopback: bool | None) -> None:
        self._private = private
        self._loopback = loopback
        self._network = network

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._addresses(host, port)
                for address in addresses[:-1]:
                    try:
                        return await self._network.connect_tcp(address, port, TRY_SECONDS, None, socket_options)
                    except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                        continue
                return await self._network.connect_tcp(addresses[-1], port, None, None, socket_options)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"{host} did not answer within {timeout:g} seconds") from None

    async def _addresses(self, host: str, port: int) -> list[str]:
        """Returns the host's checked addresses. Raises ``ForbiddenTarget``, or ConnectError if it has none."""
        host = host.removesuffix(".")
        try:
            addresses = [ip_address(host)]
            host = str(addresses[0])
        except ValueError:
            try:
                addresses = [ip_address(text) for text in await self._network.resolve(host, port)]
            except (OSError, ValueError) as error:
                raise httpcore2.ConnectError(f"the name {host} cannot be resolved: {error}") from None
        for address in addresses:
            private = self._private.has(host, port)
            _check_address(host, address, private=private, loopback=self._loopback and private)
        if not addresses:
            raise httpcore2.ConnectError(f"the name {host} has no address")
        return [str(address) for address in addresses[:MAX_TRIES]]


def _check_address(host: str, address: Address, *, private: bool, loopback: bool | None = None) -> None:
    if why := refusal_reason(address, private=private, loopback=loopback):
        kind = why if str(address) == host else f"{address}, {why}"
        raise ForbiddenTarget(f"{host} is not an allowed target: it is {kind}")
