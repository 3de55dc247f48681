"""A connection of a run's command to its proxy: one request, CONNECT or a whole ``http://`` URL."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import h11
import httpcore2
import httpx2

from .dial import GuardedTransport
from .targets import Target

if TYPE_CHECKING:
    from .credentials import HostCredentials

CHUNK = 256 * 1024
HEAD_SECONDS = 20.0
_CONNECT_SECONDS = 20.0
IDLE_SECONDS = 300.0
_MAX_HEAD = 64 * 1024
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]+):([0-9]{1,5})")
_HOP_BY_HOP = {
    *(b"connection", b"proxy-connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    *(b"proxy-authorization", b"proxy-authenticate", b"host", b"expect"),
}
_UNPRINTABLE = re.compile(r"[^ -~]")


class Connections(Protocol):
    """What the connections of one command have in common."""

    transport: GuardedTransport
    asked: set[HostCredentials]
    """Hosts with credentials that the command has asked something, so that it trusts the proxy there."""

    def judge(self, url: str) -> Target:
        """Returns the target. Raises ForbiddenTarget if it is not allowed."""
        ...

    def count(self, transferred: int) -> None:
        """Counts bytes. Raises if they are more than the command may transfer."""
        ...

    def credentials_of(self, where: Target) -> HostCredentials | None:
        """Returns the credentials for a host, or None. Raises ForbiddenTarget for one that is asked without TLS."""
        ...

    async def serve_inside(self, host: HostCredentials, writer: asyncio.StreamWriter) -> None:
        """Ends the TLS of a tunnel here, and answers what is asked inside it."""
        ...


class ProxyConnection:
    """One connection of a command, for one request."""

    def __init__(self, session: Connections, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._session = session
        self._reader = reader
        self._writer = writer
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)
        self._answered = False
        self.ended = False
        """Whether the answer is complete, so that closing must deliver all of it."""

    async def serve(self) -> None:
        async with asyncio.timeout(HEAD_SECONDS):
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
        if host := self._session.credentials_of(where):
            await self._serve_inside(host)
            return
        upstream = await self._session.transport.connect(where, _CONNECT_SECONDS)
        self._answered = True
        try:
            self._writer.write(ESTABLISHED)
            await _first_of(self._send(upstream, self._parser.trailing_data[0]), self._receive(upstream))
        finally:
            await upstream.aclose()

    async def _serve_inside(self, host: HostCredentials) -> None:
        if self._parser.trailing_data[0]:
            raise h11.RemoteProtocolError("the client has to wait for the answer to CONNECT")
        self._answered = True
        self._writer.write(ESTABLISHED)
        await self._session.serve_inside(host, self._writer)  # closes what is inside; out here no end is reported

    async def _send(self, upstream: httpcore2.AsyncNetworkStream, data: bytes) -> None:
        data = data or await self._reader.read(CHUNK)
        while data:
            self._session.count(len(data))
            await upstream.write(data, IDLE_SECONDS)
            data = await self._reader.read(CHUNK)

    async def _receive(self, upstream: httpcore2.AsyncNetworkStream) -> None:
        while data := await upstream.read(CHUNK, IDLE_SECONDS):
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
        self._session.credentials_of(where)
        has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in request.headers)
        sent = httpx2.Request(
            request.method.decode("ascii"),
            where.url,
            headers=end_to_end(list(request.headers)),
            content=self._body() if has_body else None,
        )
        answer = await self._session.transport.handle_async_request(sent)
        try:
            await self._answer(answer, [*end_to_end(answer.headers.raw), (b"Connection", b"close")], answer.aiter_raw())
        finally:
            await answer.aclose()

    async def _body(self) -> AsyncGenerator[bytes, None]:
        if self._parser.they_are_waiting_for_100_continue:
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while isinstance(event := await self._event(), h11.Data):
            self._session.count(len(event.data))
            yield bytes(event.data)

    async def _answer(
        self, answer: httpx2.Response, headers: Sequence[tuple[bytes, bytes]], body: AsyncIterable[bytes]
    ) -> None:
        self._answered = True
        self._write(h11.Response(status_code=answer.status_code, headers=[*headers]))
        async for chunk in body:
            self._session.count(len(chunk))
            self._write(h11.Data(data=chunk))
            await self._writer.drain()
        self._write(h11.EndOfMessage())
        self.ended = True

    def _write(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        self._writer.write(self._parser.send(event) or b"")


def end_to_end(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
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
