"""A receiver of webhooks: a real HTTP server in this process, which verifies what it gets by the reference package."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from standardwebhooks import Webhook as Verifier

from deputize.shared.runs.keys import WEBHOOKS
from deputize.shared.runs.store import RunStore

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER_SECRET = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()
OK = b"HTTP/1.1 204 No Content\r\n\r\n"


@dataclass
class Received:
    """One request, verified."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def content(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """``answers``: what is written to one request after the other, byte for byte; the last one stays, and ``more``
    follows it for as long as anything reads. ``hold``: what the answers wait for."""

    url: str
    answers: list[bytes] = field(default_factory=lambda: [OK])
    secret: str = SECRET
    received: list[Received] = field(default_factory=list[Received])
    answered: int = 0
    hold: asyncio.Event | None = None
    more: bytes = b""

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://").partition("/")[0]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a service and a worker that may notify it."""
        return {"webhook": {"secrets": [SECRET], "hosts": [self.host]}}

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        method, path, _ = line.split(" ")
        assert method == "POST"
        Verifier(self.secret).verify(body, headers)
        self.received.append(Received(path, headers, body))
        if self.hold:
            await self.hold.wait()
        writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
        await writer.drain()
        self.answered += 1
        gone = asyncio.ensure_future(reader.read())
        try:
            while self.more and not gone.done():
                writer.write(self.more)
                await writer.drain()
                await asyncio.wait([gone], timeout=0.002)
        finally:
            gone.cancel()


@asynccontextmanager
async def receiving(*answers: bytes, port: int = 0, address: str = "127.0.0.1") -> AsyncIterator[Receiver]:
    """Yields a receiver at a port of this machine."""
    receiver, tasks, mistakes = Receiver(""), set[asyncio.Task[Any]](), list[BaseException]()
    receiver.answers = list(answers) or receiver.answers

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await receiver.talk(reader, writer)
        except Exception as mistake:  # noqa: BLE001 - an assertion about what was received fails the test below
            mistakes.append(mistake)
        finally:
            tasks.discard(task)
            writer.close()

    async with await asyncio.start_server(serve, address, port) as listening:
        receiver.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/hook"
        try:
            yield receiver
        finally:
            left = list(tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
    if mistakes:
        raise mistakes[0]


def status(line: str, *headers: str) -> bytes:
    """Returns a whole answer without a body: ``status("429 Too Many Requests", "Retry-After: 7")``."""
    return "\r\n".join([f"HTTP/1.1 {line}", *headers, "Content-Length: 0", "", ""]).encode()


async def later(store: RunStore, seconds: float = 100_000) -> None:
    """Lets that time pass for all notifications."""
    for id in await store.redis.zrange(WEBHOOKS, 0, -1):
        await store.redis.zincrby(WEBHOOKS, -seconds * 1000, id)


def ids(received: Sequence[Received]) -> list[str]:
    return [each.id for each in received]
