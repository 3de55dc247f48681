"""The HTTP proxy through which commands reach the hosts that the operator allows: CONNECT and plain HTTP.

It resolves names itself and connects to checked addresses, as ``web_fetch`` does. What goes through a tunnel is not
looked into, so an allowed host that serves others as well can be asked for these.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import Literal

import h11
import httpcore2
import httpx2

from ...shared.log import log
from ...shared.settings import Settings
from ..sandbox.egress import Report
from .dial import GuardedTransport, Network
from .proxy_connection import CHUNK, ProxyConnection
from .targets import ForbiddenTarget, PrivateHosts, Target, target

MAX_CONNECTIONS = 64
"""Per command; further ones wait."""
MAX_REPORTED = 20
"""Refusals per command that are reported."""
PORTS = (80, 443)
_RETRY_SECONDS = 0.1
_CLOSE_SECONDS = 20.0
_GONE = (OSError, httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError, h11.ProtocolError)


class EgressProxy:
    """Lets commands reach ``hosts`` (``name``, ``*.name``, or ``*`` for every name), on ports 80 and 443.

    ``setting`` is where the operator writes them. ``private_hosts`` may lie on private addresses, and have the ports
    written there. ``max_bytes`` may be transferred per command, in both directions together. ``on_refused`` is called
    with a sentence for each refused host.
    """

    def __init__(
        self,
        setting: str,
        hosts: Sequence[str],
        max_bytes: int,
        *,
        private_hosts: Sequence[str] = (),
        on_refused: Report | None = None,
        network: Network | None = None,
    ) -> None:
        self._setting = setting
        self._hosts = [host.lower().removesuffix(".") for host in hosts]
        self._max_bytes = max_bytes
        self._private_hosts = private_hosts
        self._ports = PrivateHosts(private_hosts)
        self._on_refused = on_refused
        self._network = network

    async def serve(self, listener: socket.socket, report: Report) -> None:
        """Serves one command's proxy on ``listener``, which it owns, until it is cancelled."""
        without_tls = SSLContext(PROTOCOL_TLS_CLIENT)  # tunnels carry TLS as it is
        # A request that meets a connection just as its host closes it would fail, and a command cannot know why.
        transport = GuardedTransport(self._private_hosts, network=self._network, tls=without_tls, keepalive=False)

        def refused(sentence: str) -> None:
            report(f"[network: {sentence}]\n")
            if self._on_refused:
                self._on_refused(sentence)

        try:
            await _Session(transport, self.check, self._max_bytes, refused).accept_forever(listener)
        finally:
            listener.close()
            await transport.aclose()

    def check(self, where: Target) -> None:
        """Raises ForbiddenTarget for a host or port that commands may not reach, whatever its address is."""
        host = where.host
        wildcard = where.address is None and ("*" in self._hosts or any(host.endswith(each[1:]) for each in self._wild))
        if not (wildcard or host in self._hosts):
            raise ForbiddenTarget(f"{host} is not in {self._setting}")
        if where.port not in PORTS and not self._ports.has_port(host, where.port):
            raise ForbiddenTarget(f"port {where.port} of {host} cannot be reached; only 80 and 443 can")

    @property
    def _wild(self) -> list[str]:
        return [host for host in self._hosts if host.startswith("*.")]


def reach_of(
    settings: Settings,
    name: Literal["setup_hosts", "allowed_hosts"],
    on_refused: Report | None = None,
    *,
    network: Network | None = None,
) -> EgressProxy | None:
    """Returns the proxy to the hosts that the setting of the sandbox names, None if it names none.

    The set-up command also reaches the hosts that every command does.
    """
    own = settings.sandbox
    hosts = own.allowed_hosts if name == "allowed_hosts" else [*own.setup_hosts, *own.allowed_hosts]
    private = settings.tools.private_hosts
    if not hosts:
        return None
    named, most = f"sandbox.{name}", own.network_bytes
    return EgressProxy(named, hosts, most, private_hosts=private, on_refused=on_refused, network=network)


class _SpentError(Exception):
    """The command has transferred as much as it may."""


class _Session:
    """The connections of one command."""

    def __init__(
        self,
        transport: GuardedTransport,
        check: Callable[[Target], None],
        max_bytes: int,
        refused: Report,
    ) -> None:
        self.transport = transport
        self._check = check
        self._max_bytes = max_bytes
        self._left = max_bytes
        self._refused = refused
        self._reported: set[str] = set()

    async def accept_forever(self, listener: socket.socket) -> None:
        loop, slots = asyncio.get_running_loop(), asyncio.Semaphore(MAX_CONNECTIONS)
        connections: set[asyncio.Task[None]] = set()

        def on_end(connection: asyncio.Task[None]) -> None:
            connections.discard(connection)
            slots.release()
            if not connection.cancelled() and (error := connection.exception()):
                log.error("a connection of a command's proxy failed", exc_info=error)

        try:
            while True:
                await slots.acquire()
                accepted = await _accepted(listener)
                connection = loop.create_task(self._serve(accepted), name="a connection of a command's proxy")
                connections.add(connection)
                connection.add_done_callback(on_end)
        finally:
            for connection in connections:
                connection.cancel()
            if connections:
                await asyncio.wait(connections)

    async def _serve(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=accepted, limit=CHUNK)
        client = ProxyConnection(self, reader, writer)
        try:
            await client.serve()
        except ForbiddenTarget as error:
            self.refuse(str(error))
            client.fail(403, str(error))
        except _SpentError:
            reason = f"more than {self._max_bytes / (1 << 30):.3g} GiB were transferred (sandbox.network_bytes)"
            self.refuse(reason)
            client.fail(403, reason)
        except httpx2.RequestError as error:
            client.fail(502, str(error) or "the host ended the connection")
        except h11.RemoteProtocolError as error:
            client.fail(400, str(error))
        except _GONE:
            client.fail(502, "the connection broke")
        finally:
            await _close(writer, gracefully=client.ended)

    def judge(self, url: str) -> Target:
        """Returns the target. Raises ForbiddenTarget if it is not allowed."""
        where = target(url)
        self._check(where)
        self.count(0)
        return self.transport.check_url(where.url)

    def count(self, transferred: int) -> None:
        self._left -= transferred
        if self._left <= 0:
            raise _SpentError

    def refuse(self, sentence: str) -> None:
        if sentence not in self._reported and len(self._reported) < MAX_REPORTED:
            self._reported.add(sentence)
            self._refused(sentence)


async def _accepted(listener: socket.socket) -> socket.socket:
    while True:
        try:
            return (await asyncio.get_running_loop().sock_accept(listener))[0]
        except OSError:  # this process has too many open files
            await asyncio.sleep(_RETRY_SECONDS)


async def _close(writer: asyncio.StreamWriter, *, gracefully: bool) -> None:
    """Closes a connection, and delivers what was written if the other side takes it."""
    try:
        if gracefully:
            writer.close()
            async with asyncio.timeout(_CLOSE_SECONDS):
                await writer.wait_closed()
    except OSError:
        pass
    finally:
        writer.transport.abort()
