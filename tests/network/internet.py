"""An internet in memory: names and servers with the answers that a test defines, and a record
of every name asked for and every address dialled. It stands where ``worker.web.dial.Network`` would stand."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence

import httpcore2

from deputize.worker.web.dial import Network

PUBLIC = "93.184.215.14"
Answer = Callable[[str, str], bytes]
"""Host header and target of a request → the whole response. What does not end as its head announces never ends."""


def response(body: str | bytes = "", content_type: str = "text/html", status: str = "200 OK", **headers: str) -> bytes:
    """A whole response with its length."""
    body = body.encode() if isinstance(body, str) else body
    fields = {"Content-Type": content_type, "Content-Length": str(len(body))}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in fields.items() if value)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    return response(status=status, Location=location)


class _Names:
    """Name → the answers to one look-up after the other; the last one stays."""

    def __init__(self, names: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._left = {name: list(answers) for name, answers in names.items()}

    def look_up(self, host: str) -> Sequence[str] | None:
        answers = self._left.get(host)
        if not answers:
            return None
        return answers.pop(0) if len(answers) > 1 else answers[0]


class Internet(Network):
    """``names``: name → the answers to one look-up after the other; the last one stays. ``silent`` addresses refuse,
    and ``hangs_up`` closes connections after the answer."""

    def __init__(
        self,
        names: Mapping[str, Sequence[Sequence[str]]],
        answer: Answer,
        *,
        silent: Iterable[str] = (),
        hangs_up: bool = False,
    ) -> None:
        self._names = _Names(names)
        self.answer = answer
        self._silent = set(silent)
        self.hangs_up = hangs_up
        self.asked: list[str] = []
        self.dialled: list[tuple[str, int]] = []
        self.requested: list[tuple[str, str]] = []
        """Host header and target of each request."""
        self.heads: list[str] = []
        self.certified: list[str | None] = []
        """The names that TLS was asked to check."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if (found := self._names.look_up(host)) is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        self.dialled.append((host, port))
        if host in self._silent:
            raise httpcore2.ConnectError("refused")
        return _Connection(self)


class Rerouted(Network):
    """This machine's network, where ``names`` have other answers, as in ``Internet``, and servers of this machine stand
    at the addresses in ``ports``, whatever port is dialled."""

    def __init__(self, names: Mapping[str, Sequence[Sequence[str]]], ports: Mapping[str, int]) -> None:
        self._names = _Names(names)
        self._ports = ports

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        found = self._names.look_up(host)
        return await super().resolve(host, port) if found is None else found

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        if host in self._ports:
            host, port = "127.0.0.1", self._ports[host]
        return await super().connect_tcp(host, port, timeout, local_address, socket_options)


def sample_web() -> Internet:
    """``site.test`` with a page, ``/long`` with a long one, and ``search.test``, a SearXNG with much for ``word``."""

    def answer(host: str, path: str) -> bytes:
        if host == "site.test":
            return response("word and more words\n" * (60_000 if path == "/long" else 1), "text/plain")
        long = "words " * (100 if "q=word" in path else 1)
        found = [{"title": long, "url": f"http://site.test/{number}", "content": long} for number in range(60)]
        return response(json.dumps({"results": found}), "application/json")

    return Internet({"site.test": [[PUBLIC]], "search.test": [["10.0.0.5"]]}, answer)


class _Connection(httpcore2.AsyncNetworkStream):
    def __init__(self, internet: Internet) -> None:
        self._internet = internet
        self._heard = b""
        self._to_say = b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._heard += buffer
        head, end, _ = self._heard.partition(b"\r\n\r\n")
        if end:
            self._heard = b""
            lines = head.decode().split("\r\n")
            host = next(line.partition(": ")[2] for line in lines if line.lower().startswith("host: "))
            path = lines[0].split(" ")[1]
            self._internet.requested.append((host, path))
            self._internet.heads.append(head.decode())
            self._to_say += self._internet.answer(host, path)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if not self._to_say and not self._internet.hangs_up:
            await asyncio.Event().wait()
        said, self._to_say = self._to_say[:max_bytes], self._to_say[max_bytes:]
        return said

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        self._internet.certified.append(server_hostname)
        return self

    async def aclose(self) -> None:
        self._to_say = b""
