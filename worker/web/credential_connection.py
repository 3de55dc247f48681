"""A connection of a command to a host with credentials: its TLS ends here, and each request may get a credential."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from ssl import SSLError

import h11
import httpx2

from .credentials import Credential, Credentials, HostCredentials
from .proxy_connection import CHUNK, HEAD_SECONDS, IDLE_SECONDS, Connections, ProxyConnection, end_to_end
from .targets import ForbiddenTarget

CLOSED = "the connection was closed"
_HANDSHAKE_SECONDS = 20.0
_NO_BODY = (204, 304)


class CredentialConnection(ProxyConnection):
    """One connection, for requests one after the other."""

    def __init__(
        self,
        connections: Connections,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        credentials: Credentials,
        host: HostCredentials,
    ) -> None:
        super().__init__(connections, reader, writer)
        self._credentials = credentials
        self._host = host

    async def serve(self) -> None:
        request = await self._first()
        while isinstance(request, h11.Request):
            self._answered = self.ended = False
            await self._serve_one(request)
            if self._parser.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
                return
            self._parser.start_next_cycle()
            async with asyncio.timeout(IDLE_SECONDS):
                request = await self._event()

    async def _first(self) -> object:
        """Returns the first request. Some clients look at the certificate only now, and end the connection.

        One that the command has asked before is trusted: then this connection was only not needed.
        """
        request = None
        with suppress(ConnectionError, SSLError):
            async with asyncio.timeout(HEAD_SECONDS):
                request = await self._event()
        if isinstance(request, h11.Request):
            self._session.asked.add(self._host)
        elif self._host not in self._session.asked:
            raise ForbiddenTarget(distrusted(self._host, CLOSED))
        return request

    async def _serve_one(self, request: h11.Request) -> None:
        self._session.count(0)
        credential = self._host.of(request)
        headers = end_to_end(list(request.headers))
        has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in request.headers)
        if not has_body:
            await self._event()  # the end of the message
        sent = httpx2.Request(
            request.method.decode("ascii"),
            self._host.where.url,
            headers=[*(credential.added_to(headers) if credential else headers)],
            content=self._body() if has_body else None,
            extensions={"target": request.target},
        )
        try:
            answer = await self._session.transport.handle_async_request(sent)
        except httpx2.RemoteProtocolError:  # its reason quotes what was received, which may hold the token
            raise httpx2.RemoteProtocolError("the host's answer is not valid HTTP/1.1") from None
        try:
            if credential is None:
                await self._answer(answer, end_to_end(answer.headers.raw), answer.aiter_raw())
                return
            self._credentials.note(credential, self._host, request, answer.status_code)
            await self._answer_with(credential, request, answer)
        finally:
            await answer.aclose()

    async def _answer_with(self, credential: Credential, request: h11.Request, answer: httpx2.Response) -> None:
        encoding = answer.headers.get("content-encoding", "identity")
        has_body = request.method != b"HEAD" and answer.status_code not in _NO_BODY
        if has_body and encoding.lower() != "identity":
            raise httpx2.RemoteProtocolError("the host compresses what it was asked to send uncompressed")
        headers = credential.answered(end_to_end(answer.headers.raw))
        await self._answer(answer, headers, credential.hidden_in(answer.aiter_raw()))


async def with_tls_ended(
    credentials: Credentials, host: HostCredentials, writer: asyncio.StreamWriter
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Returns what is inside a client's TLS. Raises ForbiddenTarget if the client does not go on with it."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=CHUNK)
    protocol = asyncio.StreamReaderProtocol(reader)
    context = credentials.authority.context(host.where)
    starting = loop.start_tls(
        writer.transport, protocol, context, server_side=True, ssl_handshake_timeout=_HANDSHAKE_SECONDS
    )
    try:
        transport = await starting
    except OSError as error:
        raise ForbiddenTarget(distrusted(host, getattr(error, "reason", None) or CLOSED)) from None
    if transport is None:
        raise ForbiddenTarget(distrusted(host, CLOSED))
    protocol.connection_made(transport)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def distrusted(host: HostCredentials, reason: str) -> str:
    """Returns what a user can do about a client that ends TLS before it asks anything."""
    return (
        f"a client of {host.where.host} ended TLS before a request ({reason.replace('_', ' ').lower()}): have it trust "
        "the file of $SSL_CERT_FILE; one that pins certificates cannot use credentials"
    )
