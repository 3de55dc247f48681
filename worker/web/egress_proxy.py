"""The proxy of a run's commands: which hosts they reach, and how much they may transfer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import TYPE_CHECKING, Literal

import h11
import httpcore2
import httpx2

from ...shared.log import log
from ...shared.settings import Settings
from ..sandbox.ports import Report
from .dial import GuardedTransport, Network, trust_store
from .proxy_connection import CHUNK, ProxyConnection
from .targets import ForbiddenTarget, PrivateHosts, Target, target

if TYPE_CHECKING:
    from .credentials import Credentials, HostCredentials

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
    with a sentence for each refused host. ``roots`` vouch for hosts with credentials, by default the machine's.
    """

    credentials: Credentials | None = None
    """What it adds to requests."""

    def __init__(
        self,
        setting: str,
        hosts: Sequence[str],
        max_bytes: int,
        *,
        private_hosts: Sequence[str] = (),
        on_refused: Report | None = None,
        network: Network | None = None,
        roots: Callable[[], SSLContext] = trust_store,
    ) -> None:
        self._roots = roots
        self._setting = setting
        self._hosts = [host.lower().removesuffix(".") for host in hosts]
        self._endings = tuple(host[1:] for host in self._hosts if host == "*" or host.startswith("*."))
        self._private_hosts = private_hosts
        self._ports = PrivateHosts(private_hosts)
        self._network = network
        self.max_bytes = max_bytes
        self.on_refused = on_refused

    @property
    def trusted(self) -> bytes:
        """The certificate authorities that commands have to trust, in PEM; empty for those of the system."""
        return self.credentials.authority.trusted if self.credentials else b""

    async def serve(self, listener: socket.socket, report: Report) -> None:
        """Serves one command's proxy on ``listener``, which it owns, until it is cancelled."""
        tls = self._roots() if self.credentials else SSLContext(PROTOCOL_TLS_CLIENT)  # tunnels carry TLS as it is
        # A request that meets a connection just as its host closes it would fail, and a command cannot know why.
        transport = GuardedTransport(self._private_hosts, network=self._network, tls=tls, keepalive=False)
        try:
            async with transport:
                await _Session(self, transport, report).accept_forever(listener)
        finally:
            listener.close()

    def check(self, where: Target) -> None:
        """Raises ForbiddenTarget for a host or port that commands may not reach, whatever its address is."""
        host = where.host
        if host not in self._hosts and (where.address is not None or not host.endswith(self._endings)):
            raise ForbiddenTarget(f"{host} is not in {self._setting}")
        if where.port not in PORTS and not self._ports.has_port(host, where.port):
            raise ForbiddenTarget(f"port {where.port} of {host} cannot be reached; only 80 and 443 can")


def reach_of(
    settings: Settings,
    name: Literal["setup_hosts", "allowed_hosts"],
    on_refused: Report | None = None,
    on_used: Report | None = None,
    *,
    network: Network | None = None,
) -> EgressProxy | None:
    """Returns the proxy to the hosts that the setting of the sandbox names, None if it names none.

    The set-up command also reaches the hosts that every command does.
    """
    own = settings.sandbox
    hosts = own.allowed_hosts if name == "allowed_hosts" else [*own.setup_hosts, *own.allowed_hosts]
    return proxy_to(settings, f"sandbox.{name}", hosts, on_refused, on_used, network=network)


def proxy_to(
    settings: Settings,
    place: str,
    hosts: Sequence[str],
    on_refused: Report | None = None,
    on_used: Report | None = None,
    *,
    network: Network | None = None,
) -> EgressProxy | None:
    """Returns the proxy to hosts, with the credentials for them; None without any host.

    ``place`` is the setting that names them. ``on_used`` is called with a sentence for each use of a credential.
    """
    if not hosts:
        return None
    private, most = settings.tools.private_hosts, settings.sandbox.network_bytes
    proxy = EgressProxy(place, hosts, most, private_hosts=private, on_refused=on_refused, network=network)
    if settings.credentials:
        from .credentials import reachable  # few workers have any

        proxy.credentials = reachable(settings.credentials, proxy.check, on_used)
    return proxy


class _SpentError(Exception):
    """The command has transferred as much as it may."""


class _Session:
    """The connections of one command."""

    def __init__(self, proxy: EgressProxy, transport: GuardedTransport, report: Report) -> None:
        self.transport = transport
        self.asked: set[HostCredentials] = set()
        self._proxy = proxy
        self._left = proxy.max_bytes
        self._report = report
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
        await self._carry_out(ProxyConnection(self, reader, writer), writer)

    async def _carry_out(self, client: ProxyConnection, writer: asyncio.StreamWriter) -> None:
        try:
            await client.serve()
        except ForbiddenTarget as error:
            self.refuse(str(error))
            client.fail(403, str(error))
        except _SpentError:
            reason = f"more than {self._proxy.max_bytes / (1 << 30):.3g} GiB were transferred (sandbox.network_bytes)"
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
        self._proxy.check(where)
        self.count(0)
        return self.transport.check_url(where.url)

    def credentials_of(self, where: Target) -> HostCredentials | None:
        """Returns the credentials for a host, or None. Raises ForbiddenTarget for one that is asked without TLS."""
        return self._proxy.credentials.of(where) if self._proxy.credentials else None

    async def serve_inside(self, host: HostCredentials, writer: asyncio.StreamWriter) -> None:
        """Ends the TLS of a tunnel here, and answers what is asked inside it."""
        from .credential_connection import CLOSED, CredentialConnection, distrusted, with_tls_ended

        credentials = self._proxy.credentials
        assert credentials
        try:
            reader, inside = await with_tls_ended(credentials, host, writer)
            await self._carry_out(CredentialConnection(self, reader, inside, credentials, host), inside)
        except asyncio.CancelledError:  # the command ended before the connection did
            if host not in self.asked:
                self.refuse(distrusted(host, CLOSED))
            raise

    def count(self, transferred: int) -> None:
        """Counts bytes. Raises ``_SpentError`` if they are more than the command may transfer."""
        self._left -= transferred
        if self._left <= 0:
            raise _SpentError

    def refuse(self, sentence: str) -> None:
        if sentence not in self._reported and len(self._reported) < MAX_REPORTED:
            self._reported.add(sentence)
            self._report(f"[network: {sentence}]\n")
            if self._proxy.on_refused:
                self._proxy.on_refused(sentence)


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
