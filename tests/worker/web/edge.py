"""A proxy with a credential for ``good.test``, the real server of that name, and a client that sends any bytes."""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deputize.shared.settings.credentials import CredentialSettings
from deputize.worker.web.credentials import reachable
from deputize.worker.web.egress_proxy import EgressProxy
from tests.network.internet import PUBLIC, Rerouted, response
from tests.worker.web.certificates import certificate_of

TOKEN = "canary-token-9f83a1c4e5d7"
HOST = "good.test"
OTHER = "93.184.215.15"
"""The address of another server."""
NAMES: Mapping[str, Sequence[Sequence[str]]] = {HOST: [[PUBLIC]], "other.test": [[OTHER]]}
Answer = Callable[[str], bytes]
"""The head of a request → the whole answer."""


def plain(head: str) -> bytes:
    return response("reached", "text/plain")


FORMS = [
    TOKEN,
    TOKEN[::-1],
    TOKEN.encode().hex(),
    *(base64.b64encode(bytes(n) + TOKEN.encode()).decode()[4:28] for n in range(3)),
]


def leaks(*texts: str | bytes) -> list[str]:
    """The forms of the token that are in these."""
    whole = "\n".join(each.decode("latin-1") if isinstance(each, bytes) else each for each in texts)
    return [form for form in FORMS if form in whole]


def credentials_of(heads: Sequence[str]) -> int:
    """How many of these requests had the token."""
    return sum(TOKEN in head for head in heads)


def echo(head: str) -> bytes:
    return response(head, "text/plain", X_Echo=re.findall("[Aa]uthorization: (.*)\r", head)[0])


@dataclass
class Edge:
    """What an attacker has, and what was seen of it elsewhere."""

    address: tuple[str, int]
    proxy: EgressProxy
    network: Rerouted
    heads: list[str] = field(default_factory=list[str])
    """What the server of the credential was asked."""
    elsewhere: list[str] = field(default_factory=list[str])
    """What another server was asked."""
    said: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])
    used: list[str] = field(default_factory=list[str])

    async def raw(self, data: bytes) -> bytes:
        """All that the proxy answers outside of TLS, until it hangs up."""
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(data)
        return await _all(reader, writer)

    async def ask(
        self, data: bytes, connect: str = f"{HOST}:443", name: str | None = HOST, *, trusts: bool = True
    ) -> bytes:
        """All that is answered inside the TLS of a tunnel, or by the proxy where there is none."""
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(f"CONNECT {connect} HTTP/1.1\r\nHost: {connect}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head:
            return head + await _all(reader, writer)
        await writer.start_tls(self.context(trusts=trusts, checks=name == HOST), server_hostname=name)
        writer.write(data)
        return await _all(reader, writer)

    async def get(self, path: str, *lines: str, method: str = "GET", **more: Any) -> bytes:
        """The answer to one request with these header lines, which ends the connection."""
        head = [f"{method} {path} HTTP/1.1", f"Host: {HOST}", "Connection: close", *lines]
        return await self.ask("\r\n".join([*head, "", ""]).encode("latin-1"), **more)

    def context(self, *, trusts: bool = True, checks: bool = True) -> ssl.SSLContext:
        """What a command has: the authorities of its sandbox, or those of the system alone."""
        context = ssl.create_default_context(cadata=self.proxy.trusted.decode() if trusts else None)
        context.check_hostname = checks
        return context

    @property
    def everything(self) -> str:
        """All that a run, its caller or another user could have read, but the answers."""
        return "\n".join([*self.elsewhere, *self.said, *self.refused, *self.used])


async def _all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    except (ConnectionError, ssl.SSLError):
        return b""
    finally:
        writer.close()


@asynccontextmanager
async def _serving(answer: Answer, heads: list[str], tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that notes what it is asked, with bodies, one request a connection."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            if "content-length: " in head.lower():
                length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
                head += (await reader.readexactly(length)).decode("latin-1")
            heads.append(head)
            writer.write(answer(head))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0, ssl=tls) as listening:
        yield listening.sockets[0].getsockname()[1]


@asynccontextmanager
async def serving_tls(answer: Answer, heads: list[str], pem: Path) -> AsyncIterator[int]:
    """The same with the certificate of a file; yields the port."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)
    async with _serving(answer, heads, tls) as port:
        yield port


@asynccontextmanager
async def edge(
    folder: Path,
    answer: Answer = plain,
    *,
    names: Mapping[str, Sequence[Sequence[str]]] = NAMES,
    certified: str = HOST,
    hosts: Sequence[str] = ("*.test",),
    private: Sequence[str] = (),
    token: str = TOKEN,
    **table: Any,
) -> AsyncIterator[Edge]:
    """``certified`` is whom the server's certificate is for; ``table`` are further keys of the credential."""
    pem = certificate_of(certified, folder)
    roots = ssl.create_default_context(cafile=pem)
    heads, elsewhere = list[str](), list[str]()
    async with serving_tls(answer, heads, pem) as here, _serving(plain, elsewhere) as there:
        network = Rerouted(names, {PUBLIC: here, OTHER: there})
        async with proxied(folder, network, hosts, lambda: roots, token, private, **table) as opened:
            opened.heads, opened.elsewhere = heads, elsewhere
            yield opened


@asynccontextmanager
async def proxied(
    folder: Path,
    network: Rerouted,
    hosts: Sequence[str],
    roots: Callable[[], ssl.SSLContext],
    token: str,
    private: Sequence[str] = (),
    **table: Any,
) -> AsyncIterator[Edge]:
    """A proxy that listens on this machine, with the credential of ``table`` below ``/allowed``."""
    file = folder / "token"
    file.write_text(f"{token}\n")
    file.chmod(0o600)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    refused = list[str]()
    proxy = EgressProxy(
        "the list", hosts, 1 << 26, network=network, private_hosts=private, on_refused=refused.append, roots=roots
    )
    opened = Edge(listener.getsockname(), proxy, network, refused=refused)
    tables = {"index": CredentialSettings(**{"host": HOST, "path": "/allowed/", "token_file": file} | table)}
    proxy.credentials = reachable(tables, proxy.check, opened.used.append)
    serving = asyncio.create_task(proxy.serve(listener, opened.said.append))
    try:
        yield opened
    finally:
        serving.cancel()
        await asyncio.wait([serving])
