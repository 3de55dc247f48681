"""The proxy of a run's commands, and its connections: one request each, CONNECT or a whole ``http://`` URL."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncGenerator, Coroutine, Sequence
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import Any, Literal

import h11
import httpcore2
import httpx2

from ...shared.log import log
from ...shared.settings import Settings
from ..sandbox.egress import Report
from .dial import GuardedTransport, Network
from .targets import ForbiddenTarget, PrivateHosts, Target, target

CHUNK = 256 * 1024
_HEAD_SECONDS = 20.0
_CONNECT_SECONDS = 20.0
_IDLE_SECONDS = 300.0
_MAX_HEAD = 64 * 1024
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]+):([0-9]{1,5})")
_HOP_BY_HOP = {
    *(b"connection", b"proxy-connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    *(b"proxy-authorization", b"proxy-authenticate", b"host", b"expect"),
}
_UNPRINTABLE = re.compile(r"[^ -~]")


class ProxyConnection:
    """One connection of a command, for one request."""

    def __init__(self, session: _Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._session = session
        self._reader = reader
        self._writer = writer
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)
        self._answered = False
        self.ended = False
        """Whether the answer is complete, so that closing must deliver all of it."""

    async def serve(self) -> None:
        async with asyncio.timeout(_HEAD_SECONDS):
            request = await self._event()
        if not isinstance(request, h11.Request):
            self.ended = True
        elif request.method == b"CONNECT":
            await self._tunnel(request)
        else:
            await self._forward(request)

    def fail(self, status: int, reason: str) -> None:
        """Answers with an error, whose reason programs show, unless the answer has begun."""
        if self._answered:
            return
        line = _UNPRINTABLE.sub("?", reason)[:300]
        head = f"HTTP/1.1 {status} {line}\r\nContent-Type: text/plain\r\nConnection: close\r\n"
        self._writer.write(f"{head}Content-Length: {len(line) + 1}\r\n\r\n{line}\n".encode("ascii"))
        self.ended = True

    async def _event(self) -> object:
        while (event := self._parser.next_event()) is h11.NEED_DATA:
            self._parser.receive_data(await self._reader.read(CHUNK))
        return event

    async def _tunnel(self, request: h11.Request) -> None:
        found = _AUTHORITY.fullmatch(request.target.decode("ascii", "replace"))
        if found is None or not isinstance(await self._event(), h11.EndOfMessage):
            raise h11.RemoteProtocolError("CONNECT needs host:port")
        scheme = "http" if found[2] == "80" else "https"
        where = self._session.judge(f"{scheme}://{found[0]}/")
        upstream = await self._session.transport.connect(where, _CONNECT_SECONDS)
        self._answered = True
        try:
            self._writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _first_of(self._send(upstream, self._parser.trailing_data[0]), self._receive(upstream))
        finally:
            await upstream.aclose()

    async def _send(self, upstream: httpcore2.AsyncNetworkStream, data: bytes) -> None:
        data = data or await self._reader.read(CHUNK)
        while data:
            self._session.count(len(data))
            await upstream.write(data, _IDLE_SECONDS)
            data = await self._reader.read(CHUNK)

    async def _receive(self, upstream: httpcore2.AsyncNetworkStream) -> None:
        while data := await upstream.read(CHUNK, _IDLE_SECONDS):
            self._session.count(len(data))
            self._writer.write(data)
            await self._writer.drain()
        self.ended = True

    async def _forward(self, request: h11.Request) -> None:
        """Sends a request for a whole URL on. The URL decides the host: the client's Host header is replaced."""
        url = request.target.decode("ascii", "replace")
        if not url.lower().startswith("http://"):
            raise h11.RemoteProtocolError("this is a proxy: it needs a whole http:// URL, or CONNECT")
        where = self._session.judge(url)
        has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in request.headers)
        sent = httpx2.Request(
            request.method.decode("ascii"),
            where.url,
            headers=_end_to_end(list(request.headers)),
            content=self._body() if has_body else None,
        )
        answer = await self._session.transport.handle_async_request(sent)
        try:
            await self._answer(answer)
        finally:
            await answer.aclose()

    async def _body(self) -> AsyncGenerator[bytes, None]:
        if self._parser.they_are_waiting_for_100_continue:
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while isinstance(event := await self._event(), h11.Data):
            self._session.count(len(event.data))
            yield bytes(event.data)

    async def _answer(self, answer: httpx2.Response) -> None:
        self._answered = True
        headers = [*_end_to_end(answer.headers.raw), (b"Connection", b"close")]
        self._write(h11.Response(status_code=answer.status_code, headers=headers))
        async for chunk in answer.aiter_raw():
            self._session.count(len(chunk))
            self._write(h11.Data(data=chunk))
            await self._writer.drain()
        self._write(h11.EndOfMessage())
        self.ended = True

    def _write(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        self._writer.write(self._parser.send(event) or b"")


def _end_to_end(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Returns the headers without those of one connection, and without the host."""
    listed = b",".join(value for name, value in headers if name.lower() == b"connection")
    dropped = _HOP_BY_HOP | {each.strip().lower() for each in listed.split(b",")}
    return [(name, value) for name, value in headers if name.lower() not in dropped]


async def _first_of(*directions: Coroutine[Any, Any, None]) -> None:
    """Runs the directions of a tunnel until one of them ends; raises what that one raised."""
    tasks = [asyncio.ensure_future(each) for each in directions]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in ended:
        task.result()


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
        self._endings = tuple(host[1:] for host in self._hosts if host == "*" or host.startswith("*."))
        self._private_hosts = private_hosts
        self._ports = PrivateHosts(private_hosts)
        self._network = network
        self.max_bytes = max_bytes
        self.on_refused = on_refused

    async def serve(self, listener: socket.socket, report: Report) -> None:
        """Serves one command's proxy on ``listener``, which it owns, until it is cancelled."""
        without_tls = SSLContext(PROTOCOL_TLS_CLIENT)  # tunnels carry TLS as it is
        # A request that meets a connection just as its host closes it would fail, and a command cannot know why.
        transport = GuardedTransport(self._private_hosts, network=self._network, tls=without_tls, keepalive=False)
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
    *,
    network: Network | None = None,
) -> EgressProxy | None:
    """Returns the proxy to the hosts that the setting of the sandbox names, None if it names none.

    The set-up command also reaches the hosts that every command does.
    """
    own, private = settings.sandbox, settings.tools.private_hosts
    hosts = own.allowed_hosts if name == "allowed_hosts" else [*own.setup_hosts, *own.allowed_hosts]
    if not hosts:
        return None
    return EgressProxy(
        f"sandbox.{name}", hosts, own.network_bytes, private_hosts=private, on_refused=on_refused, network=network
    )


class _SpentError(Exception):
    """The command has transferred as much as it may."""


class _Session:
    """The connections of one command."""

    def __init__(self, proxy: EgressProxy, transport: GuardedTransport, report: Report) -> None:
        self.transport = transport
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
        client = ProxyConnection(self, reader, writer)
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
