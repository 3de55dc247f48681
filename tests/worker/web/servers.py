"""Real servers on this machine that say whatever a test wants, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from ssl import SSLContext

from deputize.worker.web.dial import Network

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(talk: Talk, tls: SSLContext | None = None) -> AsyncIterator[str]:
    """Has ``talk`` speak with each client once its request is read. Yields ``localhost:PORT``."""
    talking: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        talking.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await reader.readuntil(b"\r\n\r\n")
                await talk(reader, writer)
                await writer.drain()
        finally:
            talking.discard(task)
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as listening:
        try:
            yield f"localhost:{listening.sockets[0].getsockname()[1]}"
        finally:
            left = list(talking)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


def saying(*parts: bytes) -> Talk:
    """A server that sends these parts and hangs up."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.writelines(parts)

    return talk


def saying_for_ever(start: bytes, more: bytes) -> Talk:
    """A server that sends ``start``, and then ``more`` for as long as its client listens."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(more)
            await writer.drain()

    return talk


def falling_silent(start: bytes) -> Talk:
    """A server that sends ``start``, and then nothing, without hanging up."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        await reader.read()

    return talk


def dripping(start: bytes, drop: bytes) -> Talk:
    """A server that sends ``start``, and then a ``drop`` every few milliseconds."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        gone = asyncio.ensure_future(reader.read())
        try:
            while not gone.done():
                writer.write(drop)
                await asyncio.wait([gone], timeout=0.02)
        finally:
            gone.cancel()

    return talk


class Loopback(Network):
    """Every name is this machine."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]
